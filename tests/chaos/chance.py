"""What the gateway takes for chance, decided by a seed."""

from __future__ import annotations

import os
import random
from typing import Any

_random = random.Random()


def install() -> None:
    """Have every module imported from now on get the same "random" bytes for a seed.

    ``from os import urandom`` binds the function, so this runs before the first import of the gateway.
    """
    random.Random = _Random  # type: ignore[misc, assignment]
    os.urandom = random._urandom = lambda size: _random.randbytes(size)  # type: ignore[attr-defined]


def rewind(seed: int) -> None:
    """Begin again the sources of randomness that the gateway uses."""
    _random.seed(seed)
    random.seed(seed)


class _Random(random.Random):
    """One that is made without a seed depends on the run's."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(_random.random() if seed is None else seed)
