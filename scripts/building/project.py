"""What `pyproject.toml` says, and where things are in a checkout. It decides nothing."""

from __future__ import annotations

import platform
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Project:
    """A checkout. `requirements` go into the zipapp, each alone; a group's go into the environment with what they ask for."""

    root: Path
    version: str
    requirements: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    pythons: tuple[str, ...]

    @classmethod
    def load(cls, root: Path) -> Project:
        table = tomllib.loads((root / "pyproject.toml").read_text())
        zipapp = table["tool"]["helios"]["zipapp"]
        return cls(
            root=root,
            version=table["project"]["version"],
            requirements=(*table["project"]["dependencies"], *zipapp["indirect"]),
            groups={name: tuple(group) for name, group in table["dependency-groups"].items()},
            pythons=tuple(zipapp["pythons"]),
        )

    @property
    def environment(self) -> Path:
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.environment / "bin" / "python"

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def native(self) -> Path:
        return self.build / "native"

    @property
    def zipapp(self) -> Path:
        return self.root / "dist" / "helios.pyz"


def running_python() -> str:
    """The version of this interpreter as wheels name it, "3.11"."""
    return ".".join(platform.python_version_tuple()[:2])
