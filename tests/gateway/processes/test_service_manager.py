"""Notices to a service manager, over a real socket as systemd's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginehouse.processes.service_manager import ServiceManager


@pytest.fixture
def notices(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which a service manager would read."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        yield receiver


def _environment(notices: socket.socket, **others: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": notices.getsockname(), **others}


def test_ready_and_stopping_are_told(notices: socket.socket) -> None:
    service = ServiceManager(_environment(notices))
    service.ready("http://here:1")
    assert notices.recv(4096) == b"READY=1\nSTATUS=Listening on http://here:1"
    service.stopping()
    assert notices.recv(4096).startswith(b"STOPPING=1\n")


def test_a_reload_has_a_time_and_ends_with_ready(notices: socket.socket) -> None:
    service = ServiceManager(_environment(notices))
    service.reloading()
    reloading, usec = notices.recv(4096).split(b"\n")
    assert reloading == b"RELOADING=1"
    assert int(usec.removeprefix(b"MONOTONIC_USEC=")) > 0


def test_an_abstract_address_works() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0enginehouse-test-{os.getpid()}")
        receiver.settimeout(10)
        ServiceManager({"NOTIFY_SOCKET": "@" + receiver.getsockname()[1:].decode()}).replaced_by(77)
        assert receiver.recv(4096) == b"MAINPID=77"


def test_engines_and_others_do_not_inherit_the_variables(notices: socket.socket) -> None:
    environ = _environment(notices, WATCHDOG_USEC="20000", WATCHDOG_PID="1", PATH="/bin")
    service = ServiceManager(environ)
    assert environ == {"PATH": "/bin"}
    assert service.variables == {"NOTIFY_SOCKET": notices.getsockname(), "WATCHDOG_USEC": "20000"}


def test_the_watchdog_is_fed_by_the_event_loop_twice_in_its_time(notices: socket.socket) -> None:
    async def run() -> None:
        service = ServiceManager(_environment(notices, WATCHDOG_USEC="20000", WATCHDOG_PID=str(os.getpid())))
        service.ready("u")
        notices.setblocking(False)
        loop = asyncio.get_running_loop()
        told = [await loop.sock_recv(notices, 4096) for _ in range(4)]
        assert told[1:] == [b"WATCHDOG=1"] * 3
        service.close()
        assert service._timer is not None
        assert service._timer.cancelled()

    asyncio.run(run())


def test_the_watchdog_starves_while_nobody_serves(notices: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse.processes.service_manager._LOOK_EVERY_S", 0.001)
    looks = iter([True, *[False] * 20, True])

    async def run() -> None:
        service = ServiceManager(_environment(notices, WATCHDOG_USEC="20000", WATCHDOG_PID=str(os.getpid())))
        service.ready("u", lambda: next(looks))
        notices.setblocking(False)
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(notices, 4096) == b"READY=1\nSTATUS=Listening on u"
        assert await loop.sock_recv(notices, 4096) == b"WATCHDOG=1"
        assert await loop.sock_recv(notices, 4096) == b"WATCHDOG=1", "at the last look"
        assert not [*looks]
        service.close()

    asyncio.run(run())


def test_the_watchdog_of_another_process_is_not_fed(notices: socket.socket) -> None:
    service = ServiceManager(_environment(notices, WATCHDOG_USEC="20000", WATCHDOG_PID="1"))
    service.ready("u")  # would need an event loop to feed it
    assert service._timer is None


def test_nobody_listens_and_nothing_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({}).ready("u")
    assert not caplog.records
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("u")
    assert "did not accept 'READY=1" in caplog.text
