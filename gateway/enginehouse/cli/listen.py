"""Opens the sockets of the gateway."""

from __future__ import annotations

import os
import socket

from enginehouse.domain.errors import ConfigError


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on ``port`` at every address of ``host``. Raises ``ConfigError``.

    Called before any engine is launched, so that a port in use is found first.
    """
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            sockets.append(socket.create_server(address, family=family))
    except OSError as error:
        for opened in sockets:
            opened.close()
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        remedy = "stop the program that listens there, or choose another address with --host and --port"
        raise ConfigError(f"cannot listen on {url_of(host, port)}: {why}", remedy=remedy) from None
    return sockets


def url_of(host: str, port: int) -> str:
    """The address as a URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
