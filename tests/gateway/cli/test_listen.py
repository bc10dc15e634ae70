from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from enginehouse.cli.listen import listen, url_of
from enginehouse.domain.errors import ConfigError


def test_it_listens_where_it_was_told() -> None:
    (opened,) = listen("127.0.0.1", 0)
    with opened, socket.create_connection(opened.getsockname(), timeout=5):
        assert opened.getsockname()[0] == "127.0.0.1"


def test_a_port_in_use_is_an_error_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            listen("127.0.0.1", port)

    assert str(caught.value).startswith(f"cannot listen on http://127.0.0.1:{port}: Address already in use (")
    assert "--port" in caught.value.remedy


def test_a_host_that_is_nowhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigError, match="Name or service not known"):
        listen("nowhere.invalid", 0)


def test_all_sockets_are_closed_when_one_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    create = socket.create_server

    def once(address: tuple[str, int], **settings: Any) -> socket.socket:
        if opened:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        opened.append(create(address, **settings))
        return opened[0]

    place = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [place, place])
    monkeypatch.setattr(socket, "create_server", once)
    with pytest.raises(ConfigError):
        listen("two-addresses", 0)
    assert opened[0].fileno() == -1


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert (url_of("::1", 80), url_of("h", 80)) == ("http://[::1]:80", "http://h:80")
