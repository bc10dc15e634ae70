"""Embeddings made from a seed and a text."""

from __future__ import annotations

import math
import random
from zlib import crc32


def vector(seed: int, text: str, dimensions: int) -> list[float]:
    """A vector of length 1 that depends only on the seed and the text."""
    draw = random.Random(crc32(text.encode(), seed & 0xFFFFFFFF))
    values = [draw.uniform(-1, 1) for _ in range(dimensions)]
    length = math.hypot(*values)
    return [value / length for value in values]
