"""Who may import whom: the table below is the map in `helios/__init__.py`, and the imports must keep to it."""

from __future__ import annotations

import re

import helios
from tests.repo.sources import label, package_imports, package_sources, part_of

# Imports point from a higher row to a lower one.
ROW = {
    "cli": 5,
    "server": 4,
    "engine": 3,
    **dict.fromkeys(["runtime", "scheduler", "prompt", "output", "ignition"], 2),
    **dict.fromkeys(["contract", "tokenizer", "corefile", "device", "packing", "cache"], 1),
    **dict.fromkeys(["errors", "settings", "metrics", "owner"], 0),
}
# What may be imported from within its own row, and by whom.
SIDEWAYS = {
    "scheduler": {"runtime"},
    "contract": {"tokenizer", "corefile", "device", "packing", "cache"},
    "errors": {"settings", "metrics"},
}
# Never, though the rows would allow it: pages are numbers, moves are lists.
FORBIDDEN = {("scheduler", "device"), ("cache", "device")}
# Parts of the standard library that belong to one place.
OWNERS = {
    "ctypes": {"device"},
    "socket": {"server"},
    "socketserver": {"server"},
    "ssl": {"server", "cli"},  # a client of it waits for whole records
    "http": {"cli", "corefile"},  # clients: of a server by `chat` and `bench`, of stored resources by range
    "asyncio": {"server", "engine", "cli"},
}


def may_import(importer: str, imported: str) -> bool:
    """Whether the map allows it."""
    if importer == imported:
        return True
    if (importer, imported) in FORBIDDEN:
        return False
    return ROW[imported] < ROW[importer] or importer in SIDEWAYS.get(imported, set())


def test_imports_point_down() -> None:
    """Style, Layers."""
    wrong = [
        f"{label(path)} imports {module}"
        for path, module in package_imports()
        if module.startswith("helios.") and not may_import(part_of(path), module.split(".")[1])
    ]
    assert not wrong


def test_ctypes_sockets_and_asyncio_stay_where_they_belong() -> None:
    """Style, Layers."""
    wrong = [
        f"{label(path)} imports {module}"
        for path, module in package_imports()
        if part_of(path) not in OWNERS.get(module.split(".")[0], {part_of(path)})
    ]
    assert not wrong


def test_only_settings_reads_the_environment() -> None:
    """Style, habit 10: a setting is written once."""
    readers = {part_of(path) for path in package_sources() if re.search(r"os\.environ|getenv", path.read_text())}
    assert readers == {"settings"}


def test_the_map_names_every_package() -> None:
    """Style, The first minute."""
    parts = {part_of(path) for path in package_sources()} - {"__init__"}
    assert parts <= set(ROW), "a package without a row"
    words = set((helios.__doc__ or "").split())
    assert set(ROW) <= words, "a package that the map does not name"
