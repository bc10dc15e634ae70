"""Finds out whether the program of a launch line is on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

_LOOK = "import importlib.util, sys; sys.exit(3 if importlib.util.find_spec(sys.argv[1]) is None else 0)"
_NOT_THERE = 3
_TIMEOUT_S = 5.0


def missing_program(command: Sequence[str], path: str | None = None) -> str:
    """Name the program that ``command`` needs and ``path``, by default ``$PATH``, lacks; empty if it is there.

    Of ``python -m MODULE``, the module too.
    """
    program = shutil.which(command[0], path=path)
    if program is None:
        return f"there is no program '{command[0]}' on the PATH"
    if len(command) > 2 and command[1] == "-m" and Path(program).name.startswith("python"):
        package = command[2].partition(".")[0]
        if not _has_package(program, package):
            return f"'{command[0]}' on the PATH has no package '{package}'"
    return ""


@lru_cache(maxsize=64)
def _has_package(python: str, package: str) -> bool:
    """Whether this interpreter finds ``package``. One that does not say counts as having it."""
    if python == sys.executable:
        return find_spec(package) is not None
    try:
        looked = subprocess.run([python, "-c", _LOOK, package], capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return looked.returncode != _NOT_THERE
