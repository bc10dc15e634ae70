"""Recognizes an engine that exited because it found too little memory."""

from __future__ import annotations

from collections.abc import Iterable

from enginehouse.interfaces.too_little_memory import tells_of_too_little_memory

_KILLED = (-9, 128 + 9)
"""The kernel's out-of-memory killer sends SIGKILL; a shell reports that as 137."""


def reports_too_little_memory(status: int | None, lines: Iterable[str]) -> bool:
    """Whether an engine that exited with ``status`` after printing ``lines`` needed more memory."""
    return status in _KILLED or any(tells_of_too_little_memory(line) for line in lines)
