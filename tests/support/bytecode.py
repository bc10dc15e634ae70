"""Compiled modules that outlive a test run, also where the environment forbids them beside the sources."""

from __future__ import annotations

import os
import sys

from tests.support.paths import ROOT

_FOLDER = ROOT / ".pytest_cache" / "bytecode"


def keep_bytecode() -> None:
    """Have this process and its children compile each module once.

    With ``PYTHONDONTWRITEBYTECODE``, compiling takes half of the time in which a gateway starts.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(_FOLDER)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(_FOLDER)
