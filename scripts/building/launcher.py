"""Starts Helios from its zipapp: C extensions cannot be loaded from inside a zip, so the tree is unpacked once and kept.

It knows files and locks, nothing of Helios but `helios.cli.main`. A tree is named by its content hash, appears by one rename,
and is never changed after that. Each process holds a shared lock on the tree it runs from; who unpacks a new one removes those
that nobody holds. Whatever is in the way (place, permissions, architecture) is said in one line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

IN_USE = ".in-use"  # the file in a tree that its processes lock
PARTIAL = ".partial-"  # the prefix of a tree that is being unpacked or removed


def launch() -> NoReturn:
    """Run the command line from the unpacked tree."""
    loader: Any = __spec__.loader
    manifest = json.loads(loader.get_data("manifest.json"))
    _check_platform(manifest)
    archive, apps = Path(loader.archive), cache_directory() / "app"
    try:
        tree = ready_tree(archive, manifest, apps)
        _check_executable(tree, manifest)
        sys.path[:1] = [str(tree / "app"), str(tree / "site")]
        from helios.cli.main import main
    except OSError as error:
        where = error.filename or apps
        sys.exit(f"helios: cannot unpack into {where}: {error.strerror}; set HELIOS_HOME to a directory for its files")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())


def cache_directory() -> Path:
    """Where Helios keeps its files: the rule of `helios.settings.cache_directory`, which cannot be imported yet."""
    if home := os.environ.get("HELIOS_HOME"):
        return Path(home).expanduser().absolute()
    if (cache := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return cache / "helios"
    try:
        return Path.home() / ".cache" / "helios"
    except RuntimeError:
        sys.exit("helios: this user has no home directory; set HELIOS_HOME to a directory for its files")


def _check_platform(manifest: dict[str, Any]) -> None:
    machine = os.uname().machine
    if sys.platform != "linux" or machine != manifest["machine"]:
        sys.exit(f"helios: this file is for Linux on {manifest['machine']}, this is {sys.platform} on {machine}")
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        sys.exit("helios: this file is for the ordinary CPython, not for another or a free-threaded one")
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    name, _, version = libc.partition(" ")
    if name != "glibc":
        sys.exit("helios: this file needs a Linux with glibc; build one for this system with build.py")
    if _numbers(version) < _numbers(manifest["glibc"]):
        sys.exit(f"helios: this file needs glibc {manifest['glibc']}, this is {version}; build one here with build.py")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def ready_tree(archive: Path, manifest: dict[str, Any], apps: Path) -> Path:
    """The unpacked tree, locked for the life of this process."""
    tree = apps / f"{manifest['hash']}-py{sys.version_info[0]}{sys.version_info[1]}"
    if _hold(tree):
        return tree
    apps.mkdir(parents=True, exist_ok=True)
    with (apps / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _hold(tree):
            _remove_partial(apps)  # what a killed process left: nobody else unpacks while we have the lock
            _unpack(archive, tree)
            _hold(tree)
            _remove_unused(apps, manifest["hash"])
    return tree


def _hold(tree: Path) -> bool:
    """Lock the tree against removal until this process ends; False if there is none."""
    try:
        descriptor = os.open(tree / IN_USE, os.O_RDONLY)
    except FileNotFoundError:
        return False
    owner = os.fstat(descriptor)
    if owner.st_uid not in (0, os.getuid()):
        raise PermissionError(errno.EPERM, "it belongs to another user", str(tree))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # it is being removed
        os.close(descriptor)
        return False
    try:
        is_there = os.path.samestat(owner, (tree / IN_USE).stat())
    except FileNotFoundError:
        is_there = False
    if not is_there:
        os.close(descriptor)
    return is_there  # the descriptor stays open on purpose


def _unpack(archive: Path, tree: Path) -> None:
    import zipfile  # which no later start needs
    import zlib

    print(f"helios: unpacking into {tree}, once", file=sys.stderr)
    partial = tree.parent / f"{PARTIAL}{os.getpid()}"
    foreign = _foreign_extensions()
    try:
        with zipfile.ZipFile(archive) as source:
            names = [n for n in source.namelist() if n.startswith(("app/", "site/")) and not foreign(n)]
            source.extractall(partial, names)
        # Half of a start without it, and who runs may not be allowed, or not wish (PYTHONDONTWRITEBYTECODE), to write it later.
        for path in partial.rglob("*.py"):
            _write_bytecode(path)
        (partial / IN_USE).touch()
        partial.rename(tree)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, zipfile.BadZipFile | zlib.error | EOFError):
            sys.exit(f"helios: {archive} is damaged ({error}); download it or build it again")
        raise


def _write_bytecode(path: Path) -> None:
    """Compile a source, without its docstrings: nobody reads them in a server, and they would take 2 MB of each."""
    import ast
    import importlib.util
    import marshal
    import struct

    with contextlib.suppress(SyntaxError, ValueError):  # of another Python, or a template: who imports it is told
        module = ast.parse(path.read_bytes(), path)
        blocks: list[Any] = [module]
        while blocks:
            body = blocks.pop().body
            match body:
                case [ast.Expr(ast.Constant(str())) as text]:
                    body[0] = ast.copy_location(ast.Pass(), text)
                case [ast.Expr(ast.Constant(str())), *_]:
                    del body[0]
            blocks += [each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        code = compile(module, path, "exec", dont_inherit=True)
        found = path.stat()
        header = struct.pack("<4s3I", importlib.util.MAGIC_NUMBER, 0, int(found.st_mtime), found.st_size)
        compiled = Path(importlib.util.cache_from_source(path))
        compiled.parent.mkdir(exist_ok=True)
        compiled.write_bytes(header + marshal.dumps(code))


def _foreign_extensions() -> Callable[[str], bool]:
    """Tells an extension module of another Python version by its name, `x.cpython-312-x86_64-linux-gnu.so`."""
    own = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-"
    return lambda name: ".cpython-" in name and own not in name


def _remove_partial(apps: Path) -> None:
    for path in apps.glob(f"{PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def _remove_unused(apps: Path, current_hash: str) -> None:
    for tree in apps.iterdir():
        if tree.name.startswith((current_hash, ".")):
            continue
        try:
            descriptor = os.open(tree / IN_USE, os.O_RDONLY)
        except OSError:
            continue  # not a tree of ours
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partial = apps / f"{PARTIAL}{tree.name}"
            tree.rename(partial)
            shutil.rmtree(partial, ignore_errors=True)
        except OSError:
            pass  # in use, or not ours to remove
        finally:
            os.close(descriptor)


def _check_executable(tree: Path, manifest: dict[str, Any]) -> None:
    """Map one library the way the loader will: a file system mounted noexec refuses that."""
    with (tree / manifest["probe"]).open("rb") as library:
        try:
            mmap.mmap(library.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except PermissionError:
            sys.exit(
                f"helios: programs may not run from {tree.parent} (mounted noexec?); "
                "set HELIOS_HOME to a directory where they may"
            )
