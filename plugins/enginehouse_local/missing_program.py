"""Finds out whether the program of a launch line is on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

_LOOK = "import importlib.util, sys; sys.exit(3 if importlib.util.find_spec(sys.argv[1]) is None else 0)"
_NOT_THERE = 3
_TIMEOUT_S = 5.0


def missing_program(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Name the program that ``command`` lacks if it is run with ``environ``; empty if it is there.

    Of ``python -m MODULE``, the module too.
    """
    name = command[0] if command else ""
    program = shutil.which(name, path=environ.get("PATH"))
    if program is None:
        return f"there is no program '{name}' on the PATH"
    if len(command) > 2 and command[1] == "-m" and Path(program).name.startswith("python"):
        package = command[2].partition(".")[0]
        if not _has_package(program, package, environ.get("PYTHONPATH", "")):
            return f"'{command[0]}' has no package '{package}'"
    return ""


_found: set[tuple[str, str, str]] = set()
"""Where interpreters have found packages: what was there is not looked for before each launch."""


def _has_package(python: str, package: str, python_path: str) -> bool:
    """Whether this interpreter finds ``package``. One that does not say counts as having it."""
    asked = (python, package, python_path)
    if asked in _found or (python == sys.executable and find_spec(package) is not None):
        return True
    environ = {**os.environ, "PYTHONPATH": python_path}
    try:  # with -c, as with -m, it finds the modules of the working directory, which the gateway's own path may lack
        looked = subprocess.run([python, "-c", _LOOK, package], env=environ, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return True
    if looked.returncode == 0:
        _found.add(asked)
    return looked.returncode != _NOT_THERE
