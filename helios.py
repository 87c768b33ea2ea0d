#!/usr/bin/env python3
"""`python helios.py VERB`: Helios from a checkout. `helios/__init__.py` is the map."""

import sys

from helios.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
