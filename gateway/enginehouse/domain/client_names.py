"""Names that clients choose, in a form that may be kept."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

LONGEST_NAME: Final = 256
"""In characters."""


def kept_name(name: str) -> str:
    """``name``, or a hash of one with more than 256 characters, since records, sums and limits keep names."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"hash:{blake2b(name.encode(errors='replace'), digest_size=16).hexdigest()}"
