"""The CUDA kernels in `build/native/libhelios_cuda.so`: device code by nvcc, and the table that says how kernels are launched.

It knows nvcc, not kernels. Each source becomes one fat binary with code for every architecture, compiled again only when what
went into it changed; the library carries them as data, so it loads where there is no CUDA, and a core can be prepared there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scripts.building.environment import install
from scripts.building.includes import with_headers
from scripts.building.native import Library, build_libraries, compile_all, find_compiler, run_compiler, sources
from scripts.building.project import Project
from scripts.building.steps import BuildError, Progress, digest, run_step

CUDA_LIBRARY = "libhelios_cuda.so"
# Cubins run on later minor versions of their major version; sm_90a on 9.0 alone, for its own instructions. The driver compiles
# the PTX for what is newer than all of them: the oldest in which a kernel waits for the one before it, because it is started
# early on all of these.
ARCHITECTURES = ("80", "86", "89", "90a", "100", "120")
PTX_ARCHITECTURE = "90"
# Arithmetic is what the sources say, as on the host: nothing is contracted.
NVCC_FLAGS = ["-std=c++17", "-O3", "--fmad=false", "-Icuda_src", "-Werror", "all-warnings", "-Xptxas", "-v"]
N_JOBS = 2
# A quarter to a whole minute each; begun first, so that none is left alone at the end.
SLOW = ("sample", "linear_g16", "attention")
PACKAGES = [f"nvidia-{name}==13.0.*" for name in ("cuda-nvcc", "cuda-crt", "nvvm", "cuda-cccl", "cuda-runtime")]
TOOLKIT = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler: where it is, and what it calls itself."""

    path: Path
    version: str


def parse_architectures(text: str) -> tuple[str, ...]:
    """What `--cuda` was given: "all", or architectures such as "90a,120"."""
    if text == "all":
        return ARCHITECTURES
    chosen = tuple(word.removeprefix("sm_") for word in text.split(","))
    unknown = [word for word in chosen if word not in ARCHITECTURES]
    if unknown:
        raise BuildError(f"there is no code for sm_{unknown[0]}; choose among {','.join(ARCHITECTURES)}")
    return chosen


def find_nvcc(project: Project) -> Nvcc | None:
    """$CUDA_HOME, $CUDA_PATH, the PATH, the toolkit's usual place, the packages in .venv: the first that starts."""
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    on_path = shutil.which("nvcc")
    candidates = [
        *(Path(toolkit) / "bin" / "nvcc" for toolkit in named if toolkit),
        *([Path(on_path)] if on_path else []),
        TOOLKIT / "bin" / "nvcc",
        *project.environment.glob("lib/python3*/site-packages/nvidia/cu13/bin/nvcc"),
    ]
    for path in candidates:
        try:
            result = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if result.returncode == 0:
            return Nvcc(path, result.stdout)
    return None


def install_nvcc(project: Project) -> Nvcc:
    """nvcc from packages, 270 MB in .venv."""
    progress = Progress("nvcc")
    install(project, PACKAGES, [], progress, project.build / "log" / "nvcc.log")
    nvcc = find_nvcc(project)
    if nvcc is None:
        raise BuildError("nvcc was installed into .venv and does not start; install the CUDA toolkit")
    progress.end("no CUDA compiler here, so it was installed into .venv")
    return nvcc


def build_cuda(project: Project, nvcc: Nvcc, architectures: Sequence[str]) -> None:
    """Compile what has changed, and put the library together."""
    source = project.root / "cuda_src"
    kernels = sources(source / "cuda", "*.cu")
    images = {each: _image(project, nvcc, architectures, each) for each in kernels}
    directory = project.build / "cuda"
    run_step(
        "cuda kernels",
        project.build / "stamps" / "cuda-kernels",
        digest(*(image.name for image in images.values())),
        [directory / "images.cpp", *images.values()],
        lambda progress: _compile_images(project, nvcc, architectures, images, progress),
    )
    extents = [path for path in sources(source / "host") if path.name != "table.cpp"]
    library = Library(
        project.native / CUDA_LIBRARY,
        (*extents, *kernels, source / "cuda" / "table.cpp", directory / "images.cpp"),
        ("-O1", "-ffunction-sections", "-fdata-sections"),
        ("-Wl,--gc-sections",),
    )
    build_libraries(project, "cuda library", find_compiler(project), [library])


def usage_reports(project: Project) -> list[Path]:
    """What the assembler said about the kernels that were built last, a file for each source (`ptxas.read_usage`)."""
    return sorted((project.build / "cuda").glob("*.txt"))


def _image(project: Project, nvcc: Nvcc, architectures: Sequence[str], source: Path) -> Path:
    parts = with_headers(source, project.root / "cuda_src")
    key = digest(nvcc.version, *NVCC_FLAGS, PTX_ARCHITECTURE, *architectures, parts)[:16]
    return project.build / "cuda" / f"{source.stem}-{key}.fatbin"


def _compile_images(
    project: Project, nvcc: Nvcc, architectures: Sequence[str], images: dict[Path, Path], progress: Progress
) -> str:
    missing = sorted((source for source, image in images.items() if not image.exists()), key=_order)
    jobs = [partial(_compile, project, nvcc, architectures, source, images[source]) for source in missing]
    compile_all(jobs, N_JOBS, progress)
    _write_images(project, images)
    current = {path for image in images.values() for path in (image, image.with_suffix(".txt"))}
    for path in (project.build / "cuda").iterdir():
        if path not in current and path.name != "images.cpp":
            path.unlink()
    size_mb = sum(image.stat().st_size for image in images.values()) / 1e6
    return f"{len(missing)} sources compiled for sm_{', sm_'.join(architectures)}, {size_mb:.1f} MB"


def _order(source: Path) -> tuple[bool, Path]:
    return source.stem not in SLOW, source


def _compile(project: Project, nvcc: Nvcc, architectures: Sequence[str], source: Path, image: Path) -> None:
    image.parent.mkdir(parents=True, exist_ok=True)
    unfinished = image.with_suffix(".part.fatbin")
    code = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in architectures]
    code.append(f"-gencode=arch=compute_{PTX_ARCHITECTURE},code=compute_{PTX_ARCHITECTURE}")
    command = [str(nvcc.path), "-fatbin", "--compress-mode=size", *NVCC_FLAGS, *code]
    said = run_compiler(
        project, f"cuda-{source.name}", [*command, str(source.relative_to(project.root)), "-o", str(unfinished)]
    )
    image.with_suffix(".txt").write_text(said)
    unfinished.replace(image)


def _write_images(project: Project, images: dict[Path, Path]) -> None:
    """The fat binaries as data, in C++ that every compiler takes."""
    lines = ['#include "cuda/images.h"', ""]
    for index, image in enumerate(images.values()):
        name = f"helios_image_{index}"
        place = (
            f'.pushsection .rodata.{name},\\"a\\",@progbits\\n.balign 64\\n.globl {name}\\n.hidden {name}\\n{name}:\\n'
        )
        path = image.relative_to(project.root)
        lines += [f'asm("{place}.incbin \\"{path}\\"\\n.popsection");', f'extern "C" const char {name}[];']
    lines += ["", "namespace helios::cuda {", "const HeliosImage images[] = {"]
    for index, (source, image) in enumerate(images.items()):
        lines.append(f'    {{"{source.relative_to(project.root)}", helios_image_{index}, {image.stat().st_size}}},')
    lines += ["};", f"const uint32_t n_images = {len(images)};", "}  // namespace helios::cuda", ""]
    (project.build / "cuda" / "images.cpp").write_text("\n".join(lines))
