"""The zipapp's `__main__.py`: one clear line for a Python that the wheels inside were not made for, else the launcher.

It is written so that any Python back to 2.7 can parse it, and knows only the list of versions in the manifest.
"""

import json
import sys

pythons = json.loads(__loader__.get_data("manifest.json").decode("ascii"))["pythons"]  # type: ignore[name-defined]
if "%d.%d" % sys.version_info[:2] not in pythons:
    sys.exit(
        "helios: this file is for Python %s, this is Python %d.%d" % ((", ".join(pythons),) + sys.version_info[:2])
    )

from launcher import launch  # type: ignore[import-not-found]

launch()
