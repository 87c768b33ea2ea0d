#!/usr/bin/env python3
"""Builds Helios from nothing: environment, native libraries, default model, `dist/helios.pyz`; then serves it or tests it.

It knows the order of the steps and nothing of how they work (`scripts/building/`). Every step prints one line, is skipped while
its inputs are the same, and ends in one sentence when it fails. It needs Python 3.11 and, of the outside world, only pip.
"""

import sys

if sys.version_info < (3, 11):  # before the imports below, which an older Python cannot parse
    sys.exit("build.py: needs Python 3.11 or newer, this is %d.%d; run it with a newer python3" % sys.version_info[:2])

from scripts.building.verbs import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
