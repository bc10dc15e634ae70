"""Compiled modules that outlive a test run, also where the environment forbids them."""

from __future__ import annotations

import os
import sys


def keep_bytecode() -> None:
    """Have this process and its children compile each module once.

    With ``PYTHONDONTWRITEBYTECODE``, compiling takes half of the time in which a gateway starts.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
