"""The two sides of a take-over, over real sockets in one process."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginehouse.interfaces.accounting import LimitRule, TakenLimit
from enginehouse.processes import replacement
from enginehouse.processes.replacement import Replacement
from enginehouse.processes.take_over import new_side, successor
from enginehouse.processes.take_over.channel import ChannelClosed, MessageChannel, connect_in, listen_in
from enginehouse.processes.take_over.messages import (
    FORMAT,
    VERSION,
    Built,
    Hello,
    PassedConnection,
    Retired,
    TakeOverOffer,
)
from enginehouse.processes.take_over.new_side import Predecessor, TakeOverFailed
from enginehouse.processes.take_over.successor import SuccessorGateway
from tests.support.waiting import until, within

TAKEN = {"key/requests": TakenLimit(LimitRule(10, "minute"), 4.5)}


class Running:
    """A gateway with its server that notes what a take-over does to it."""

    def __init__(self, folder: Path) -> None:
        self.state_folder = folder
        self.events: list[object] = []
        self.adopted: list[tuple[socket.socket, bytes]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listeners = SimpleNamespace(sockets=[self.listener])
        self.lock = os.open(os.devnull, os.O_RDONLY)
        self.callers = SimpleNamespace(accounting=SimpleNamespace(taken=lambda: TAKEN))
        self.config = SimpleNamespace(server=SimpleNamespace(drain_timeout=5.0))

    async def pause(self) -> int:
        self.events.append("paused")
        return self.lock

    def stop_accepting(self) -> None:
        self.events.append("closed")

    async def resume(self) -> None:
        self.events.append("resumed")

    async def accept(self) -> None:
        self.events.append("open")

    def leave(self, pid: int) -> None:
        self.events.append(pid)

    async def serve_connection(self, connection: socket.socket, passed: PassedConnection, *, last: bool) -> None:
        self.adopted.append((connection, passed.received))

    def close(self) -> None:
        self.listener.close()
        os.close(self.lock)
        for connection, _ in self.adopted:
            connection.close()


def in_loop(test: Callable[[Running, Path], object], folder: Path) -> None:
    """Run a test beside a gateway that runs in ``folder``."""

    async def run() -> None:
        running = Running(folder)
        both = cast(Any, running)
        server = Replacement(both, both, lambda *_: None, running.leave, workers=False)
        server.open()
        try:
            await within(test(running, folder))  # type: ignore[arg-type]
        finally:
            server.close()
            running.close()

    asyncio.run(run())


def found(folder: Path) -> Predecessor:
    predecessor = Predecessor.find(folder)
    assert predecessor is not None
    return predecessor


async def accepted(folder: Path) -> Predecessor:
    """A new gateway whose offer is not refused: the running one has noticed that an earlier one is dead."""
    while True:
        predecessor = found(folder)
        try:
            await predecessor.connect()
        except TakeOverFailed:
            continue
        return predecessor


def test_everything_passes_in_the_order_that_loses_nothing(tmp_path: Path) -> None:
    async def test(running: Running, folder: Path) -> None:
        predecessor = found(folder)
        await predecessor.connect()
        (listening,) = predecessor.listening
        with listening:
            assert listening.getsockname() == running.listener.getsockname()
            assert not os.get_inheritable(listening.fileno())
        assert running.events == []
        lock = await predecessor.leave_engines()
        assert os.fstat(lock).st_rdev == os.fstat(running.lock).st_rdev
        os.close(lock)
        assert running.events == ["paused", "closed"]
        assert await predecessor.retire() == TAKEN
        await until(lambda: running.events == ["paused", "closed", os.getpid()])
        predecessor.close()

    in_loop(test, tmp_path)


def test_a_new_gateway_that_dies_before_it_was_built_changes_nothing(tmp_path: Path) -> None:
    async def test(running: Running, folder: Path) -> None:
        first = found(folder)
        await first.connect()
        first.listening[0].close()
        first.close()
        second = await accepted(folder)
        second.listening[0].close()
        second.close()
        assert running.events == []

    in_loop(test, tmp_path)


def test_a_new_gateway_that_dies_with_the_engines_has_the_old_one_go_on(tmp_path: Path) -> None:
    """Another one can take over afterwards, although the dead one had taken its place in the folder."""

    async def test(running: Running, folder: Path) -> None:
        first = found(folder)
        await first.connect()
        first.listening[0].close()
        os.close(await first.leave_engines())
        listen_in(folder).close()
        first.close()
        await until(lambda: running.events == ["paused", "closed", "resumed", "open"])
        second = found(folder)
        await second.connect()
        second.listening[0].close()
        second.close()

    in_loop(test, tmp_path)


def test_another_format_is_refused_with_a_message(tmp_path: Path) -> None:
    async def test(running: Running, folder: Path) -> None:
        channel = MessageChannel(connect_in(folder))
        await channel.send(Hello(format=FORMAT + 1, version="9.0", pid=1, wants="engines"))
        offer, descriptors = await channel.receive(TakeOverOffer)
        assert offer.refused.endswith("stop the running one, then start the new one")
        assert VERSION in offer.refused
        assert f"9.0 in format {FORMAT + 1}" in offer.refused
        assert not descriptors
        assert not running.events
        channel.close()

    in_loop(test, tmp_path)


def test_a_refusal_reaches_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(running: Running, folder: Path) -> None:
        monkeypatch.setattr("enginehouse.processes.take_over.messages.FORMAT", FORMAT + 1)
        with pytest.raises(
            TakeOverFailed,
            match=rf"keeps serving: process \d+ refuses: it hands over as {re.escape(VERSION)} in format",
        ):
            await found(folder).connect()

    in_loop(test, tmp_path)


def test_only_one_takes_over_at_a_time(tmp_path: Path) -> None:
    async def test(running: Running, folder: Path) -> None:
        first = found(folder)
        await first.connect()
        first.listening[0].close()
        with pytest.raises(TakeOverFailed, match="is taking over already"):
            await found(folder).connect()
        first.close()
        assert running.events == []

    in_loop(test, tmp_path)


def test_a_gateway_that_hangs_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(new_side, "_SAID_S", 0.01)
    monkeypatch.setattr(new_side, "_ANSWER_S", 0.05)
    with (
        listen_in(tmp_path),
        pytest.raises(TakeOverFailed, match=rf"process {os.getpid()} has not answered .* SIGKILL"),
    ):
        asyncio.run(found(tmp_path).connect())
    assert f"Waiting for the running gateway: process {os.getpid()} has not" in caplog.text


def test_a_gateway_that_hands_over_and_never_ends_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(running: Running, folder: Path) -> None:
        predecessor = await accepted(folder)
        predecessor.listening[0].close()
        os.close(await predecessor.leave_engines())
        monkeypatch.setattr(new_side, "_END_S", -4.9)
        gone = asyncio.ensure_future(predecessor.gone())
        await predecessor.retire()
        await gone
        predecessor.close()

    in_loop(test, tmp_path)
    assert f"Process {os.getpid()} has not ended 0.1 s after it handed over" in caplog.text


@pytest.mark.parametrize("says_hello", [False, True])
def test_a_new_gateway_that_hangs_blocks_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, says_hello: bool
) -> None:
    async def test(running: Running, folder: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(replacement, "_BUILD_S" if says_hello else "_HELLO_S", 0.01)
            hung = found(folder)
            if says_hello:
                await hung.connect()
                hung.listening[0].close()
                await until(lambda: "was not ready to take over" in caplog.text)
                with pytest.raises(TakeOverFailed, match="was not ready within"):
                    await hung.leave_engines()
            else:
                with pytest.raises(ChannelClosed, match="ended the conversation"):
                    await hung._channel.receive(TakeOverOffer)
                hung.close()
        second = await accepted(folder)
        second.listening[0].close()
        os.close(await second.leave_engines())
        second.close()
        await until(lambda: running.events == ["paused", "closed", "resumed", "open"])

    in_loop(test, tmp_path)


def test_a_new_gateway_that_hangs_with_the_engines_has_the_old_one_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(running: Running, folder: Path) -> None:
        monkeypatch.setattr(replacement, "_TAKE_S", 0.01)
        hung = found(folder)
        await hung.connect()
        hung.listening[0].close()
        os.close(await hung.leave_engines())
        await until(lambda: running.events == ["paused", "closed", "resumed", "open"])
        with pytest.raises(TakeOverFailed, match="keeps serving"):
            await hung.retire()

    in_loop(test, tmp_path)


def test_no_gateway_is_found_in_an_empty_folder_or_behind_a_dead_one(tmp_path: Path) -> None:
    assert Predecessor.find(tmp_path) is None
    assert Predecessor.find(tmp_path / "none") is None
    listen_in(tmp_path).close()
    assert Predecessor.find(tmp_path) is None


def test_a_folder_with_a_long_name_will_do(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with listen_in(folder), connect_in(folder) as connection:
        assert connection.fileno() > 0
    assert (folder / "take-over").stat().st_mode & 0o077 == 0


def test_clients_connections_arrive_with_what_was_read(tmp_path: Path) -> None:
    async def test(running: Running, folder: Path) -> None:
        successor = SuccessorGateway(folder)
        ours, theirs = socket.socketpair()
        with ours:
            large = b"x" * 3_000_000
            for received in (b"", b"POST / HTTP/1.1\r\n\r\n", large):
                successor.take(theirs.fileno(), received)
            theirs.close()
            await successor.close()
            await until(lambda: len(running.adopted) == 3)
            assert [received for _, received in running.adopted] == [b"", b"POST / HTTP/1.1\r\n\r\n", large]
            running.adopted[0][0].send(b"alive")
            assert ours.recv(5) == b"alive"

    in_loop(test, tmp_path)


def test_a_successor_that_is_gone_costs_only_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        successor = SuccessorGateway(tmp_path)
        ours, theirs = socket.socketpair()
        with ours:
            successor.take(theirs.fileno(), b"")
            theirs.close()
            await successor.close()
            assert ours.recv(1) == b""

    asyncio.run(run())
    assert "did not take a client's connection" in caplog.text


def test_a_successor_that_hangs_costs_only_its_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(successor, "_READ_S", 0.01)

    async def run() -> None:
        successor = SuccessorGateway(tmp_path)
        ours, theirs = socket.socketpair()
        with ours:
            for _ in range(200):
                successor.take(theirs.fileno(), b"x" * 100_000)
            theirs.close()
            await within(successor.close())

    with listen_in(tmp_path):
        asyncio.run(run())
    assert "it has not read for 0.01 s" in caplog.text


def test_a_wrong_message_ends_the_conversation() -> None:
    async def run() -> None:
        left, right = (MessageChannel(each) for each in socket.socketpair())
        await left.send(Built(), [0])
        with pytest.raises(ChannelClosed, match="sent no PassedConnection"):
            await right.receive(PassedConnection)
        left.close()
        with pytest.raises(ChannelClosed, match="ended the conversation"):
            await right.receive(Retired)
        right.close()

    asyncio.run(run())
