from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from enginehouse.aio.write_batch import BatchedTransport, WriteBatch, batched
from tests.support.fake_transport import FakeTransport


class Turns:
    """An event loop that keeps what it is asked to call until the turn ends."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def end(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class End(FakeTransport):
    """Calls ``before_write`` first."""

    def __init__(self) -> None:
        super().__init__()
        self.before_write: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        self.before_write()
        super().write(data)


class Wires:
    """Connections to one process."""

    def __init__(self, count: int) -> None:
        self.turns = Turns()
        batch = WriteBatch(self.turns.call_soon)
        self.ends = [End() for _ in range(count)]
        self.transports: list[BatchedTransport] = [batched(end, batch) for end in self.ends]

    def write_to_all(self, data: bytes) -> None:
        for transport in self.transports:
            transport.write(data)

    @property
    def written(self) -> list[bytes]:
        return [end.written for end in self.ends]


def refuse() -> None:
    raise RuntimeError("the connection is closed")


@pytest.fixture
def wires() -> Wires:
    return Wires(3)


@pytest.fixture
def busy() -> Wires:
    """The last turn had several writes."""
    wires = Wires(3)
    wires.write_to_all(b"1")
    wires.turns.end()
    return wires


def test_the_first_write_goes_out_at_once_and_the_others_when_the_turn_ends(wires: Wires) -> None:
    wires.write_to_all(b"1")
    assert wires.written == [b"1", b"", b""]
    wires.turns.end()
    assert wires.written == [b"1", b"1", b"1"]


def test_after_a_turn_with_several_writes_the_first_one_waits_too(busy: Wires) -> None:
    busy.write_to_all(b"2")
    assert busy.written == [b"1", b"1", b"1"]
    busy.turns.end()
    assert busy.written == [b"12", b"12", b"12"]


def test_after_a_turn_with_one_write_the_first_one_goes_out_at_once_again(busy: Wires) -> None:
    busy.transports[0].write(b"2")
    busy.turns.end()
    busy.write_to_all(b"3")
    assert busy.written == [b"123", b"1", b"1"]


def test_no_more_than_sixteen_wait() -> None:
    wires = Wires(20)
    wires.write_to_all(b"1")
    assert wires.written == [b"1"] * 17 + [b""] * 3
    wires.turns.end()
    assert wires.written == [b"1"] * 20


def test_a_full_batch_counts_as_several_writes() -> None:
    wires = Wires(17)
    wires.write_to_all(b"1")
    wires.turns.end()
    wires.transports[0].write(b"2")
    assert wires.written[0] == b"1"


def test_pieces_keep_their_order(busy: Wires) -> None:
    transport, end = busy.transports[0], busy.ends[0]
    transport.write(b"2")
    transport.write(b"3")
    assert (end.written, transport.get_write_buffer_size()) == (b"1", 2)
    busy.turns.end()
    assert (end.written, transport.get_write_buffer_size()) == (b"123", 0)


def test_much_data_does_not_wait(busy: Wires) -> None:
    much = bytes(64 * 1024)
    busy.transports[0].write(b"2")
    busy.transports[0].write(much)
    assert busy.ends[0].written == b"12" + much
    busy.turns.end()
    assert busy.ends[0].written == b"12" + much


def test_what_is_kept_is_sent_before_the_connection_closes(busy: Wires) -> None:
    busy.transports[0].write(b"2")
    busy.transports[0].close()
    assert (busy.ends[0].written, busy.ends[0].closing) == (b"12", True)


def test_what_is_kept_is_sent_before_the_connection_is_aborted(busy: Wires) -> None:
    busy.transports[0].write(b"2")
    busy.transports[0].abort()
    assert (busy.ends[0].written, busy.ends[0].aborted) == (b"12", True)


def test_what_is_kept_is_sent_before_the_transport_is_released(busy: Wires) -> None:
    busy.transports[0].write(b"2")
    assert busy.transports[0].released() is busy.ends[0]
    assert busy.ends[0].written == b"12"


def test_nothing_is_not_a_write(wires: Wires) -> None:
    wires.transports[0].write(b"")
    wires.write_to_all(b"1")
    assert wires.written == [b"1", b"", b""]


def test_a_connection_that_cannot_be_written_to_does_not_hold_up_the_others(
    busy: Wires, caplog: pytest.LogCaptureFixture
) -> None:
    busy.ends[0].before_write = refuse
    busy.write_to_all(b"2")
    busy.turns.end()
    assert busy.written == [b"1", b"12", b"12"]
    assert busy.ends[0].aborted
    assert "cannot be written to" in caplog.text


def test_a_connection_that_is_lost_meanwhile_is_written_to_no_more(
    busy: Wires, caplog: pytest.LogCaptureFixture
) -> None:
    busy.write_to_all(b"2")
    busy.ends[0].closing = True
    busy.ends[0].before_write = refuse
    busy.turns.end()
    assert busy.written == [b"1", b"12", b"12"]
    assert caplog.text == ""


def test_a_write_that_sending_causes_goes_out_too(busy: Wires) -> None:
    busy.ends[0].before_write = lambda: busy.transports[1].write(b"answer")
    busy.transports[0].write(b"2")
    busy.turns.end()
    busy.turns.end()
    assert busy.written == [b"12", b"1answer", b"1"]


async def test_the_running_loop_ends_the_turns() -> None:
    batch = WriteBatch()
    ends = [FakeTransport(), FakeTransport()]
    for end in ends:
        batched(end, batch).write(b"1")
    assert [end.written for end in ends] == [b"1", b""]
    await asyncio.sleep(0)
    assert [end.written for end in ends] == [b"1", b"1"]


def test_a_first_write_that_fails_holds_up_no_other(wires: Wires) -> None:
    wires.ends[0].before_write = refuse
    with pytest.raises(RuntimeError):
        wires.transports[0].write(b"1")
    wires.transports[1].write(b"2")
    wires.turns.end()
    assert wires.written == [b"", b"2", b""]


def test_a_write_to_a_lost_connection_does_nothing(wires: Wires) -> None:
    wires.ends[0].before_write = refuse
    wires.ends[0].closing = True
    wires.transports[0].write(b"1")
    assert wires.written == [b"", b"", b""]


def test_a_closed_connection_takes_nothing_more(wires: Wires) -> None:
    wires.transports[0].close()
    wires.ends[0].closing = False  # as while a transport still sends what the peer has not taken
    wires.transports[0].write(b"1")
    assert wires.written == [b"", b"", b""]
    assert wires.transports[0].is_closing()
