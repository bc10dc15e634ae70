"""Text that clients and engines choose, in a form that may be kept or printed."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

LONGEST_NAME: Final = 256
"""In characters."""
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def kept_name(name: str) -> str:
    """``name``, or a hash of one with more than 256 characters, since records, sums and limits keep names."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"hash:{blake2b(name.encode(errors='replace'), digest_size=16).hexdigest()}"


def escaped(text: str) -> str:
    """``text`` for a terminal or a log: characters that steer it are spelled out as in Python, but for ends of lines.

    These are control characters, and those that change the direction of writing.
    """
    return _STEERING.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    return ascii(found.group())[1:-1]
