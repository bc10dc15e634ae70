"""Ports that a test names before somebody listens there."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """A port that nothing listens on. On Linux, nobody gets it meanwhile who does not ask for it by its number."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":  # there, nobody else may listen at it as long as it is held
            holder.close()
        yield port
