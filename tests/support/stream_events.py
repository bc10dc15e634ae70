"""Events of a chat's stream."""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
"""The last one."""


def event(number: int = 1) -> bytes:
    """A plain event."""
    return b'data: {"n": %d}\n\n' % number


def long_event(size: int) -> bytes:
    """An event of about ``size`` bytes."""
    return b'data: {"text": "%s"}\n\n' % (b"x" * size)
