"""How the kernel acknowledges what an engine sends."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from enginehouse.aio.write_batch import BatchedTransport

_QUICKACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)
"""0 where it does not exist: only Linux has it."""


def delay_acknowledgements(transport: BatchedTransport) -> None:
    """Let the kernel acknowledge every second small piece that is read, instead of each one.

    Sending one takes up to a tenth of the processor time of a relayed event. When a piece has waited for 40 ms, the
    kernel acknowledges it and returns to its former behaviour: an engine that uses Nagle's algorithm waits so long once
    for each call.
    """
    connection = transport.get_extra_info("socket")
    if _QUICKACK and connection is not None:
        with suppress(OSError, ValueError):  # the answer passes without it too
            connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 0)
