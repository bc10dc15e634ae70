"""Where a running gateway can be reached by the next one: a unix socket in its state folder."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_NAME = "take-over"
_BEGUN = "take-over.new"
_CONNECT_S = 1.0
"""The kernel connects at once, unless too many connect to a gateway that hangs."""


def listen_in(folder: Path) -> socket.socket:
    """Listen in the state folder of this gateway, in place of an earlier one. Raises ``OSError``.

    Only this user can connect.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as short:
            (folder / _BEGUN).unlink(missing_ok=True)
            listener.bind(f"{short}/{_BEGUN}")
        (folder / _BEGUN).chmod(0o600)
        listener.listen()
        (folder / _BEGUN).replace(folder / _NAME)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def connect_in(folder: Path) -> socket.socket:
    """Connect to the gateway that runs in a state folder. Raises ``OSError`` if none does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_CONNECT_S)
    try:
        with _short(folder) as short:
            connection.connect(f"{short}/{_NAME}")
    except OSError:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A short name of ``folder`` where there is one: the address of a unix socket has at most 107 bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{descriptor}"
        yield short if Path(short).exists() else str(folder)
    finally:
        os.close(descriptor)
