"""How one side of a WebSocket ended."""

from __future__ import annotations

from typing import NamedTuple


class Farewell(NamedTuple):
    """The code and the reason of a close frame.

    The code is 1005 if the frame has none, and 1006 if there is no frame (RFC 6455, 7.4.1).
    """

    code: int
    reason: str = ""
