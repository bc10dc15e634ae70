"""What becomes of an answer in its filters, without anything that sends it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest

from enginehouse.domain.errors import PluginFailed
from enginehouse.domain.plugin_id import PluginId
from enginehouse.relay.engine_memory import EngineMemory, HeldAnswer
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse_interception.answer_filters import AnswerFilters
from enginehouse_interception.filtering_writer import FilteringWriter
from enginehouse_interception.stage import InForce, Stage
from enginehouse_kit.interceptors import AnswerFilter, Event, Interceptor, Passed, Refuse

DONE = b"data: [DONE]\n\n"


def chunk(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


class Shouts(AnswerFilter):
    """Writes in capitals, ends with ``!``, and refuses ``stop``."""

    def __init__(self) -> None:
        self.told: list[Mapping[str, Any]] = []

    def event(self, event: Event) -> Passed:
        if event.text == "stop":
            return Refuse(451, "stopped", "No more of that")
        return Event("text", event.choice, event.text.upper()) if event.kind == "text" else event

    def end(self) -> Passed:
        return Event("text", 0, "!")

    def broken(self, error: Mapping[str, Any]) -> None:
        self.told.append(error)


def filters(*each: AnswerFilter) -> tuple[AnswerFilters, EngineMemory]:
    memory = EngineMemory()
    terms = InForce(Interceptor(), PluginId("interceptor", "own"), 1.0, passes=False, outer=False)
    stages = [Stage(one, terms, memory) for one in each]
    return AnswerFilters(stages, HeldAnswer(memory, "answer", 1 << 20), chat=True), memory


def test_events_pass_all_filters_in_their_order() -> None:
    class Doubles(AnswerFilter):
        def event(self, event: Event) -> Passed:
            return [event, event]

    passing, _ = filters(Shouts(), Doubles())
    passed, problem = passing.take(chunk("hi"))
    assert (passed.count(b'"HI"'), problem) == (2, None)
    last, problem = passing.take(DONE, last=True)
    assert last.endswith(DONE)
    assert (last.count(b'"!"'), problem) == (2, None)
    assert passing.ended


def test_any_sequence_of_events_takes_the_place_of_one() -> None:
    class Repeats(AnswerFilter):
        def event(self, event: Event) -> Passed:
            return deque([event, event]) if event.text == "hi" else deque()

    passing, _ = filters(Repeats())
    passed, problem = passing.take(chunk("hi") + chunk("no"))
    assert (passed.count(b'"hi"'), passed.count(b"data:"), problem) == (2, 2, None)


@pytest.mark.parametrize("said", ["", b"", "text", {"kind": "text"}, {}, iter(())])
def test_what_is_neither_an_event_nor_a_sequence_of_events_ends_the_answer(said: Any) -> None:
    class Wrong(AnswerFilter):
        def event(self, event: Event) -> Passed:
            return said  # type: ignore[no-any-return]

    _, problem = filters(Wrong())[0].take(chunk("hi"))
    assert isinstance(problem, PluginFailed)


def test_an_event_in_two_pieces_waits_for_its_end() -> None:
    passing, memory = filters(Shouts())
    event = chunk("hello")
    assert passing.take(event[:20]) == (b"", None)
    assert memory.held == 20
    passed, _ = passing.take(event[20:])
    assert b'"HELLO"' in passed
    assert memory.held == 0


def test_what_is_before_a_refusal_passes_and_the_answer_ends_with_its_error() -> None:
    passing, _ = filters(shouts := Shouts())
    passed, problem = passing.take(chunk("hi") + chunk("stop") + chunk("never"))
    assert b'"HI"' in passed
    assert b"NEVER" not in passed
    assert problem is passing.problem
    assert passing.problem is not None
    assert (passing.problem.status, passing.problem.code) == (451, "stopped")
    passing.broken({"code": "stopped"})
    passing.broken({"code": "later"})
    assert shouts.told == [{"code": "stopped"}]


def test_filters_that_read_nothing_leave_pieces_as_they_are() -> None:
    passing, _ = filters(AnswerFilter())
    assert not passing.reads
    assert passing.take(b"data: {half an ev") == (b"data: {half an ev", None)


def test_a_filter_changes_heads_and_not_their_framing() -> None:
    class Names(AnswerFilter):
        def head(self, status: int, headers: Mapping[str, str]) -> Mapping[str, str | None]:
            return {"X-Seen": str(status), "server": None, "Content-Length": "7"}

    passing, _ = filters(Names())
    lines = passing.head(200, b"server: engine\r\ncontent-length: 2\r\n")
    assert lines == b"content-length: 2\r\nx-seen: 200\r\n"


class Client(ResponseWriter):
    """The client's side of an answer."""

    def __init__(self) -> None:
        self.got = b""
        self.broke = False

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self.got += b"%d " % status

    def write(self, chunk: bytes) -> None:
        self.got += chunk

    def finish(self, chunk: bytes) -> None:
        self.got += chunk

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        self.broke = True


@pytest.mark.parametrize("leaves", [False, True])
def test_filters_learn_once_how_an_answer_without_an_end_ended(leaves: bool) -> None:
    memory = EngineMemory()
    terms = InForce(Interceptor(), PluginId("interceptor", "own"), 1.0, passes=False, outer=False)
    writer = FilteringWriter(client := Client(), memory, "/v1/chat/completions", {}, lambda: 0.0)
    writer.filter_with([Stage(shouts := Shouts(), terms, memory)])
    writer.start(200, b"content-type: text/event-stream\r\n", None)
    writer.write(chunk("hi") + chunk("more")[:10])
    if leaves:
        writer.release()
    else:
        writer.abort()
    assert client.broke is not leaves
    assert [each["code"] for each in shouts.told] == ["client_left" if leaves else "upstream_error"]
    assert memory.held == 0


def test_each_filter_learns_of_an_end_that_another_one_refuses() -> None:
    class Refuses(AnswerFilter):
        def end(self) -> Passed:
            return Refuse(451, "stopped", "No more of that")

    passing, _ = filters(first := Shouts(), Refuses(), last := Shouts())
    _, problem = passing.take(DONE, last=True)
    assert problem is passing.problem
    passing.broken({"code": "stopped"})
    passing.broken({"code": "later"})
    assert (first.told, last.told) == ([], [{"code": "stopped"}])


def test_heartbeats_are_silence() -> None:
    class Listens(AnswerFilter):
        def silent(self, seconds: float) -> Passed:
            heard.append(seconds)
            return None

    heard: list[float] = []
    now = 0.0
    memory, listening = EngineMemory(), dict[FilteringWriter, None]()
    terms = InForce(Interceptor(), PluginId("interceptor", "own"), 1.0, passes=False, outer=False)
    writer = FilteringWriter(Client(), memory, "/v1/chat/completions", listening, lambda: now)
    writer.filter_with([Stage(Listens(), terms, memory)])
    writer.start(200, b"content-type: text/event-stream\r\n", None)
    for now, piece in ((5.0, chunk("hi")), (10.0, b": ping\n\n"), (20.0, b"")):
        if piece:
            writer.write(piece)
        writer.tell_silence(now)
    assert heard == [0.0, 5.0, 15.0]


def test_what_a_filter_held_before_it_failed_passes_first() -> None:
    class Holds(AnswerFilter):
        def event(self, event: Event) -> Passed:
            return None

        def silent(self, seconds: float) -> Passed:
            raise ValueError("no")

    memory = EngineMemory()
    terms = InForce(Interceptor(), PluginId("interceptor", "own"), 1.0, passes=True, outer=False)
    passing = AnswerFilters([Stage(Holds(), terms, memory)], HeldAnswer(memory, "answer", 1 << 20), chat=True)
    assert passing.take(chunk("one")) == (b"", None)
    assert passing.silent(1.0) == (b"", None)
    passed, _ = passing.take(chunk("two"))
    assert passed.index(b"one") < passed.index(b"two")
    assert memory.held == 0
