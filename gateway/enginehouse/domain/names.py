"""Names that people and engines choose: a form that may be kept or printed, patterns, and the one that was meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from enginehouse.domain.request import Headers  # commands start without msgspec

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


def did_you_mean(name: str, known: list[str]) -> str:
    """``did you mean "..."?`` with the name in ``known`` that is closest to ``name``; empty if none is close."""
    near = get_close_matches(name, known, n=1)
    return f'did you mean "{near[0]}"?' if near else ""


def matches_any(patterns: Sequence[str], name: str) -> bool:
    """Whether one of ``patterns``, such as ``gpu-*``, matches ``name``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def has_header(headers: Headers, wanted: str) -> bool:
    """Whether there is a header such as ``x-zone: private``, whose value may be a pattern."""
    name, _, pattern = wanted.partition(":")
    named, pattern = name.strip().lower().encode(), pattern.strip()
    return any(key == named and fnmatchcase(value.decode("latin-1").strip(), pattern) for key, value in headers)
