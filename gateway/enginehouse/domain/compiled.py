"""Whether the hot path is compiled."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

COMPILED: Final = find_spec("enginehouse__mypyc") is not None
"""``tools/compiled.py`` makes that library, with the code of all compiled modules."""
