"""The sockets on which the gateway listens: its own, or those that a service manager has opened for it."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from enginehouse.config.load_config import load_config_or_embedded
from enginehouse.domain.errors import ConfigError, GatewayError

_FIRST_PASSED = 3
"""The descriptor of the first socket that a service manager passes (sd_listen_fds(3))."""
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class Listeners:
    """The listening sockets of one gateway. The process that made it owns them; servers get copies.

    So a server that has closed its copies can listen again, and connections wait in the kernel's queue meanwhile.
    """

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = sockets

    @classmethod
    def open(cls, host: str, port: int, environ: MutableMapping[str, str] = os.environ) -> Listeners:
        """The sockets of the service manager, if it has opened any; else those of ``listen``."""
        return cls(_passed_sockets(environ) or listen(host, port))

    def copies(self) -> list[socket.socket]:
        """New descriptors of the same sockets, for a server that closes them."""
        return [each.dup() for each in self.sockets]

    @property
    def url(self) -> str:
        """The first address, as a URL."""
        return url_of(*self.address)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.sockets[0].getsockname()[:2]
        return host, port

    def fits(self, host: str, port: int) -> bool:
        """Whether these are the sockets of ``host`` and ``port``; port 0 takes any."""
        found = {each.getsockname()[:2] for each in self.sockets}
        try:
            wanted = {(address[4][0], address[4][1]) for address in _addresses(host, port)}
        except OSError:
            return False
        return found == wanted if port else {each[0] for each in found} == {each[0] for each in wanted}

    def close(self) -> None:
        """Close the sockets, unless another process has them too."""
        for each in self.sockets:
            each.close()


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on ``port`` at every address of ``host``. Raises ``ConfigError``.

    Called before any engine is launched, so that a port in use is found first.
    """
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in _addresses(host, port):
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


def configured_url(file: Path | None) -> str:
    """The URL, seen from this machine, of the gateway that ``file``, else the configuration that is found, describes.

    Raises ``ConfigError``, and ``GatewayError`` for port 0.
    """
    server = load_config_or_embedded(file, os.environ).config.server
    if server.port == 0:
        raise GatewayError("server.port is 0, so the port is not known: give --url or $ENGINEHOUSE_URL")
    return url_of(_EVERY_ADDRESS.get(server.host, server.host), server.port)


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # type: ignore[return-value]


def _passed_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The sockets that were opened for this process. Raises ``ConfigError`` for one that does not listen.

    Removes the variables that announce them, so that no engine takes them for its own.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    sockets = [socket.socket(fileno=_FIRST_PASSED + number) for number in range(int(count))]
    for each in sockets:
        each.set_inheritable(False)
        inet = each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM
        if not inet or not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ConfigError(
                "the service manager passed a socket that does not listen for TCP connections",
                remedy="give the socket unit only ListenStream= lines with an address and a port, and Accept=no",
            )
    return sockets
