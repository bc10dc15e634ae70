"""How many objects of a class are in memory."""

from __future__ import annotations

import gc


def living(kind: type) -> int:
    """Count the objects whose class is ``kind``. Compiled classes have no weak references that could tell."""
    return sum(type(each) is kind for each in gc.get_objects())
