from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from enginehouse.domain.errors import ConfigError
from enginehouse.processes.listen import Listeners, listen, url_of


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


def test_a_service_managers_sockets_are_taken() -> None:
    """In a process of its own, because the descriptors have fixed numbers."""
    program = (
        "import os\n"
        "from enginehouse.processes.listen import Listeners\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "listeners = Listeners.open('127.0.0.1', 1)\n"
        "assert not [name for name in os.environ if name.startswith('LISTEN_')]\n"
        "print(listeners.url, os.get_inheritable(3))\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        done = _run_with_descriptor(program, opened.fileno())
    assert done.stdout == f"http://127.0.0.1:{port} False\n", done.stderr


def test_a_service_managers_other_socket_is_refused() -> None:
    program = (
        "import os\n"
        "from enginehouse.processes.listen import Listeners\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "Listeners.open('127.0.0.1', 1)\n"
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        done = _run_with_descriptor(program, datagrams.fileno())
    assert "Accept=no" in done.stderr


def test_sockets_for_another_process_are_left_alone() -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1"}
    listeners = Listeners.open("127.0.0.1", 0, environ)
    assert listeners.sockets[0].getsockname()[1] != 0
    assert environ == {}
    listeners.close()


def test_copies_listen_on_when_one_is_closed() -> None:
    listeners = Listeners(listen("127.0.0.1", 0))
    for copy in listeners.copies():
        copy.close()
    with socket.create_connection(listeners.sockets[0].getsockname(), timeout=5):
        listeners.close()


def test_listeners_know_whether_they_fit_an_address() -> None:
    listeners = Listeners(listen("127.0.0.1", 0))
    port = listeners.sockets[0].getsockname()[1]
    assert listeners.fits("127.0.0.1", port)
    assert listeners.fits("localhost", 0) == ("::1" not in {each[4][0] for each in socket.getaddrinfo("localhost", 0)})
    assert listeners.fits("127.0.0.1", 0)
    assert not listeners.fits("127.0.0.1", port + 1)
    assert not listeners.fits("0.0.0.0", port)
    listeners.close()


def _run_with_descriptor(program: str, descriptor: int) -> subprocess.CompletedProcess[str]:
    """Run ``program`` with ``descriptor`` as its first passed socket."""
    command = [sys.executable, "-c", f"import os; os.dup2({descriptor}, 3)\n" + program]
    environment = {**os.environ, "LISTEN_FDS": "1"}
    return subprocess.run(command, env=environment, pass_fds=[descriptor], capture_output=True, text=True, check=False)
