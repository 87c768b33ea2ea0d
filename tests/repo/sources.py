"""The Python sources of the package and what each imports, for the tests about the repository."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def package_sources() -> list[Path]:
    """Every hand-written module of `helios/`."""
    return sorted(path for path in (ROOT / "helios").rglob("*.py") if not path.name.endswith("_pb2.py"))


def package_imports() -> Iterator[tuple[Path, str]]:
    """Every import of every module: the file, and the full name of what it imports."""
    return ((path, module) for path in package_sources() for module in imported_modules(path))


def imported_modules(path: Path) -> Iterator[str]:
    """The full names that a file imports, wherever in the file: `from a.b import c` is `a.b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            yield node.module


def part_of(path: Path) -> str:
    """The package or root module that a file belongs to: `helios/device/graph.py` is `device`, `helios/errors.py` is `errors`."""
    return path.relative_to(ROOT / "helios").parts[0].removesuffix(".py")


def label(path: Path) -> str:
    """A test id."""
    return str(path.relative_to(ROOT))
