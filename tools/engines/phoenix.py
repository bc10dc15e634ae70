"""Installs Arize Phoenix, a store and viewer of traces, into a virtual environment of its own, 0.9 GB."""

from __future__ import annotations

import subprocess
import venv

from tests.support.real_engines import PHOENIX_VERSION, find_phoenix, phoenix_folder


def bring() -> None:
    if find_phoenix() is None:
        venv.create(phoenix_folder(), with_pip=True, clear=True)
        python = phoenix_folder() / "bin" / "python"
        requirement = f"arize-phoenix=={PHOENIX_VERSION}"
        subprocess.run([python, "-m", "pip", "install", "--quiet", requirement], check=True)
    print(find_phoenix())
