"""The native libraries in `build/native/`: the host runtime, and one kernel library for each CPU level.

Beside them, for tests only, the CUDA kernels over an emulator of thread blocks (`simt`). It knows compilers, not kernels. An
object file is named by the digest of all that went into it, so it is never stale; the libraries need nothing but glibc, and
a kernel's arithmetic is what its source says (no contraction, no reassociation).
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scripts.building.environment import install
from scripts.building.includes import with_headers
from scripts.building.project import Project
from scripts.building.steps import BuildError, Progress, digest, run_step, telling_line

COMPILE_FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
]
GCC_FLAGS = ["-fno-tree-reassoc"]
# Unless a target is named, zig compiles for the very machine it runs on.
ZIG_FLAGS = ["-target", f"{platform.machine()}-linux-gnu.2.28"]
LINK_FLAGS = ["-shared", "-pthread", "-Wl,-z,defs", "-Wl,-s"]
STATIC_FLAGS = ["-static-libstdc++", "-static-libgcc"]

# The CPU levels that get a kernel library, with the flags that select them. `helios/device/libraries.py` picks one at load.
TARGETS: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        "x86-64": [],
        "x86-64-v3": ["-march=x86-64-v3"],
        "x86-64-v4": ["-march=x86-64-v4", "-mavx512vnni"],
        "x86-64-v4-amx": ["-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mamx-int8"],
    },
    "aarch64": {"aarch64": []},
}
SIMT_LIBRARY = "libhelios_kernels.simt.so"
ZIG_SPELLING = {"-march=x86-64-v3": "-march=x86_64_v3", "-march=x86-64-v4": "-march=x86_64_v4"}


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, what it calls itself, and the flags that suit it."""

    command: tuple[str, ...]
    version: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]


@dataclass(frozen=True)
class Library:
    """A library to build from these sources; `flags` are for compiling."""

    path: Path
    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    link_flags: tuple[str, ...] = ()


def build_native(project: Project) -> None:
    """Compile what has changed of what serves."""
    compiler = find_compiler(project)
    build_libraries(project, "native", compiler, served_libraries(project, compiler))


def build_emulator(project: Project) -> None:
    """Compile what has changed of what only tests run."""
    build_libraries(project, "emulator", find_compiler(project), [emulated_library(project)])


def build_libraries(project: Project, step: str, compiler: Compiler, libraries: list[Library]) -> None:
    """Compile what has changed of these, as one step of that name."""
    objects = {
        library: [_object(project, compiler, library, source) for source in library.sources] for library in libraries
    }
    run_step(
        step,
        project.build / "stamps" / step.replace(" ", "-"),
        digest(*(str(path.relative_to(project.root)) for paths in objects.values() for path in paths)),
        [library.path for library in objects],
        lambda progress: _build(project, compiler, objects, progress),
    )


def served_libraries(project: Project, compiler: Compiler) -> list[Library]:
    """The runtime and the kernels of this machine's architecture."""
    machine = platform.machine()
    if machine not in TARGETS:
        raise BuildError(f"there are no kernels for {machine}; build on one of {', '.join(TARGETS)}")
    source = project.root / "cuda_src"
    cudart, host = source / "cudart", source / "host"
    libraries = [Library(project.native / "libhelios_cudart.so", sources(cudart), ())]
    for target, flags in TARGETS[machine].items():
        path = project.native / f"libhelios_kernels.{target}.so"
        level = [ZIG_SPELLING.get(flag, flag) for flag in flags] if is_zig(compiler.command) else flags
        libraries.append(Library(path, sources(host), (f'-DHELIOS_TARGET="{target}"', *level)))
    return libraries


def emulated_library(project: Project) -> Library:
    """The CUDA kernels over the emulator. What a launch may touch is asked of the host's kernels, so they are in it too, but not to
    run: -O1 compiles fast. A load or store off the alignment of its type is reported to the emulator."""
    source = project.root / "cuda_src"
    extents = tuple(path for path in sources(source / "host") if path.name != "table.cpp")
    emulated = (*sources(source / "cuda", "*.cu"), *sources(source / "simt"))
    flags = ('-DHELIOS_TARGET="simt"', "-O1", "-fsanitize=alignment")
    return Library(project.native / SIMT_LIBRARY, (*extents, *emulated), flags)


def sources(directory: Path, pattern: str = "*.cpp") -> tuple[Path, ...]:
    """The sources of a folder, which has some."""
    found = tuple(sorted(directory.glob(pattern)))
    if not found:
        raise BuildError(f"there are no C++ sources in {directory}; is this a whole checkout?")
    return found


def find_compiler(project: Project) -> Compiler:
    """$CXX, c++, g++ or clang++, whichever works first; else the `ziglang` package, a compiler that pip can install."""
    for words in [os.environ.get("CXX", ""), "c++", "g++", "clang++"]:
        command = tuple(shlex.split(words))
        if command and shutil.which(command[0]) and (compiler := _probe(command, project)):
            return compiler
    zig = (str(project.python), "-m", "ziglang", "c++")
    if not (compiler := _probe(zig, project)):
        _install_zig(project)
        compiler = _probe(zig, project)
    if not compiler:
        raise BuildError("found no working C++ compiler; install g++ or clang++, or name one with CXX=")
    return compiler


def is_zig(command: Sequence[str]) -> bool:
    """Whether this is `zig c++`, in either way to start it."""
    return "zig" in " ".join(command)


def _install_zig(project: Project) -> None:
    progress = Progress("compiler")
    install(project, ["ziglang"], [], progress, project.build / "log" / "compiler.log")
    progress.end("no C++ compiler here, so ziglang was installed into .venv")


def _probe(command: tuple[str, ...], project: Project) -> Compiler | None:
    """Build an empty library with it: what it is, and whether it can link the C++ runtime statically. None if it cannot build."""
    directory = project.build / "probe"
    directory.mkdir(parents=True, exist_ok=True)
    source, output = directory / "probe.cpp", directory / "probe.so"
    source.write_text(
        "#include <string>\nextern \"C\" int probe(int n) { return std::string(n, 'x').find('y') == 0; }\n"
    )
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    own_flags = ZIG_FLAGS if is_zig(command) else [] if "clang" in version else GCC_FLAGS
    for static_flags in ([] if is_zig(command) else STATIC_FLAGS, []):
        flags = [*COMPILE_FLAGS, *own_flags, *LINK_FLAGS, *static_flags]
        probe = subprocess.run([*command, *flags, source, "-o", output], capture_output=True, check=False)
        if probe.returncode == 0:
            return Compiler(command, version, (*COMPILE_FLAGS, *own_flags), (*LINK_FLAGS, *own_flags, *static_flags))
    return None


def _build(project: Project, compiler: Compiler, objects: dict[Library, list[Path]], progress: Progress) -> str:
    missing = [
        (library, source, path)
        for library, paths in objects.items()
        for source, path in zip(library.sources, paths, strict=True)
        if not path.exists()
    ]
    compile_all([partial(_compile, project, compiler, *each) for each in missing], os.cpu_count(), progress)
    for library, paths in objects.items():
        progress.show(f"linking {library.path.name}")
        _link(project, compiler, library, paths)
    _forget_old_objects({path for paths in objects.values() for path in paths})
    return f"{len(objects)} libraries, {len(missing)} sources compiled by {compiler.command[-1]}"


def compile_all(jobs: Sequence[Callable[[], None]], n_at_once: int | None, progress: Progress) -> None:
    """Run all jobs, so many at once; the first that fails ends the others that have not begun."""
    with ThreadPoolExecutor(max_workers=n_at_once) as pool:
        work = [pool.submit(job) for job in jobs]
        try:
            for n_done, future in enumerate(work):
                progress.show(f"compiling {n_done} of {len(work)}")
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _object(project: Project, compiler: Compiler, library: Library, source: Path) -> Path:
    key = digest(repr(compiler), *library.flags, with_headers(source, project.root / "cuda_src"))[:16]
    return project.build / "objects" / library.path.stem / f"{source.stem}-{key}.o"


def _compile(project: Project, compiler: Compiler, library: Library, source: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part.o")
    source_name = str(source.relative_to(project.root))  # so that the output does not depend on where the checkout is
    flags = [*compiler.compile_flags, *library.flags, "-Icuda_src"]
    run_compiler(
        project,
        f"{library.path.stem}-{source.name}",
        [*compiler.command, *flags, "-x", "c++", "-c", source_name, "-o", str(unfinished)],
    )
    unfinished.replace(path)


def _link(project: Project, compiler: Compiler, library: Library, objects: Sequence[Path]) -> None:
    library.path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.path.with_suffix(".part")
    name = library.path.name
    run_compiler(
        project,
        name,
        [
            *(*compiler.command, *map(str, objects), *compiler.link_flags, *library.link_flags),
            *(f"-Wl,-soname,{name}", "-o", str(unfinished)),
        ],
    )
    unfinished.replace(library.path)  # a new file: processes that have mapped the old one keep it


def run_compiler(project: Project, name: str, command: Sequence[str]) -> str:
    """Run a compiler in the checkout; what it says is returned, and kept in `build/log`."""
    result = subprocess.run(command, capture_output=True, text=True, cwd=project.root, check=False)
    if result.stderr or result.returncode != 0:
        log = project.build / "log" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{shlex.join(command)}\n{result.stderr}")
        if result.returncode != 0:
            raise BuildError(f"compiling failed: {telling_line(result.stderr)}; all of it is in {log}")
    return result.stderr


def _forget_old_objects(current: set[Path]) -> None:
    for directory in {path.parent for path in current}:
        for path in directory.glob("*.o"):
            if path not in current:
                path.unlink()
