"""Notices to a service manager, over a real socket as systemd's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enginehouse.runtime import SERVING
from enginehouse_service.notices import ServiceNotices


@pytest.fixture
def notices(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which a service manager would read."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        yield receiver


Service = Callable[..., ServiceNotices]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, notices: socket.socket) -> Service:
    """Makes what speaks to the service manager, in an environment with further variables."""
    monkeypatch.setattr(ServiceNotices, "_variables", {})

    def make(address: str = "", **others: str) -> ServiceNotices:
        monkeypatch.setenv("NOTIFY_SOCKET", address or notices.getsockname())
        for name, value in others.items():
            monkeypatch.setenv(name, value)
        return ServiceNotices()

    return make


def test_ready_and_stopping_are_told(notices: socket.socket, service: Service) -> None:
    told = service()
    told.serving("ready", "http://here:1")
    assert notices.recv(4096) == b"READY=1\nSTATUS=Listening on http://here:1"
    told.serving("stopping", "")
    assert notices.recv(4096).startswith(b"STOPPING=1\n")


def test_a_reload_has_a_time_and_ends_with_ready(notices: socket.socket, service: Service) -> None:
    service().serving("reloading", "")
    reloading, usec = notices.recv(4096).split(b"\n")
    assert reloading == b"RELOADING=1"
    assert int(usec.removeprefix(b"MONOTONIC_USEC=")) > 0


def test_an_abstract_address_works(service: Service) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0enginehouse-test-{os.getpid()}")
        receiver.settimeout(10)
        service("@" + receiver.getsockname()[1:].decode()).serving("replaced", "77")
        assert receiver.recv(4096) == b"MAINPID=77"


async def test_only_a_process_that_takes_over_inherits_the_variables(notices: socket.socket, service: Service) -> None:
    own = {"NOTIFY_SOCKET": notices.getsockname(), "WATCHDOG_USEC": "20000"}
    told = service(WATCHDOG_USEC="20000", WATCHDOG_PID="1")
    names = {*own, "WATCHDOG_PID"}
    assert names.isdisjoint(os.environ)
    told.serving("replacing", "")
    assert {name: value for name, value in os.environ.items() if name in names} == own
    await asyncio.sleep(0)
    assert names.isdisjoint(os.environ)
    ServiceNotices().serving("stopping", "")
    assert notices.recv(4096).startswith(b"STOPPING=1\n"), "another instance knows them"


def test_the_watchdog_is_fed_by_the_event_loop_twice_in_its_time(notices: socket.socket, service: Service) -> None:
    async def run() -> None:
        told = service(WATCHDOG_USEC="20000", WATCHDOG_PID=str(os.getpid()))
        told.serving("ready", "u")
        notices.setblocking(False)
        loop = asyncio.get_running_loop()
        assert [await loop.sock_recv(notices, 4096) for _ in range(4)][1:] == [b"WATCHDOG=1"] * 3
        told.stop()
        assert told._timer is not None
        assert told._timer.cancelled()

    asyncio.run(run())


def test_the_watchdog_starves_while_nobody_serves(
    notices: socket.socket, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginehouse_service.notices._LOOK_EVERY_S", 0.001)
    looks = iter([True, *[False] * 20, True])
    monkeypatch.setattr(SERVING, "accepts", lambda: next(looks))

    async def run() -> None:
        told = service(WATCHDOG_USEC="20000", WATCHDOG_PID=str(os.getpid()))
        told.serving("ready", "u")
        notices.setblocking(False)
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(notices, 4096) == b"READY=1\nSTATUS=Listening on u"
        assert await loop.sock_recv(notices, 4096) == b"WATCHDOG=1"
        assert await loop.sock_recv(notices, 4096) == b"WATCHDOG=1", "at the last look"
        assert not [*looks]
        told.stop()

    asyncio.run(run())


def test_the_watchdog_of_another_process_is_not_fed(service: Service) -> None:
    told = service(WATCHDOG_USEC="20000", WATCHDOG_PID="1")
    told.serving("ready", "u")  # would need an event loop to feed it
    assert told._timer is None


def test_nobody_listens_and_nothing_fails(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    ServiceNotices().serving("ready", "u")
    assert not caplog.records
    service(str(tmp_path / "gone")).serving("ready", "u")
    assert "did not accept 'READY=1" in caplog.text
