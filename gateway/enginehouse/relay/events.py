"""Server-sent events, as far as a relay must understand them."""

from __future__ import annotations

import msgspec

_LARGEST_HELD = 1 << 20
ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""How an event may end."""


def whole_events(data: bytes) -> tuple[bytes, bytes]:
    """Split ``data`` after its last complete event.

    The rest waits for its end, so that a broken stream can be continued or ended with an error event at any time. An
    event of more than 1 MiB is passed on in pieces.
    """
    if data.endswith(ENDS):
        return data, b""
    cut = max(data.rfind(end) + len(end) if end in data else 0 for end in ENDS)
    if len(data) - cut > _LARGEST_HELD:
        return data, b""
    return data[:cut], data[cut:]


def ends_as_done(data: bytes) -> bool:
    """Whether ``data`` ends with the ``[DONE]`` that closes a stream of OpenAI's completion endpoints."""
    return data.rstrip().endswith(b"data: [DONE]")


def comment(text: bytes) -> bytes:
    """``text``, of one line or several, where only those who read the stream itself will see it."""
    return b"".join(b": %s\n" % line for line in text.splitlines()) + b"\n"


def error_event(envelope: object) -> bytes:
    """The event that tells a client that its stream ended badly."""
    return b"event: error\ndata: " + msgspec.json.encode(envelope) + b"\n\n"
