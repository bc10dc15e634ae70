"""Patterns of names, and of headers with their values, as the configuration writes them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from enginehouse.domain.request import Headers


def matches_any(patterns: Sequence[str], name: str) -> bool:
    """Whether one of ``patterns``, such as ``gpu-*``, matches ``name``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def has_header(headers: Headers, wanted: str) -> bool:
    """Whether there is a header such as ``x-zone: private``, whose value may be a pattern."""
    name, _, pattern = wanted.partition(":")
    named, pattern = name.strip().lower().encode(), pattern.strip()
    return any(key == named and fnmatchcase(value.decode("latin-1").strip(), pattern) for key, value in headers)
