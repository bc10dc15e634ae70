"""Answers of engines in all their forms, translated, mean to the vendors' own clients what they meant.

``make test`` tries some seeds, ``make slow`` many more: ``ENGINEHOUSE_FUZZ=50`` multiplies those of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

from enginehouse.domain.errors import EngineRefused, RequestError, UpstreamError
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse_kit.protocols import Protocol, ProtocolRequest, Translation
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.responses.protocol import Responses
from enginehouse_translation.translating_writer import TranslatingWriter, TranslationTurns
from tests.plugins.protocols.generated.engine_answers import AnswerMaker, Event, Meaning
from tests.plugins.protocols.generated.readers import (
    Understood,
    read_as_codex,
    read_message,
    read_ollama,
    read_response,
    read_whole_message,
    read_whole_response,
)
from tests.support.waiting import until

HELLO = [{"role": "user", "content": "hi"}]
FACTOR = int(os.environ.get("ENGINEHOUSE_FUZZ", "1"))


class Dialect(NamedTuple):
    protocol: Protocol
    path: str
    asked: dict[str, Any]
    read: Callable[[bytes], Understood]
    read_whole: Callable[[bytes], Understood]


DIALECTS = {
    "messages": Dialect(
        Messages(), "/v1/messages", {"messages": HELLO, "max_tokens": 9}, read_message, read_whole_message
    ),
    "responses": Dialect(Responses(), "/v1/responses", {"input": "hi"}, read_response, read_whole_response),
    "ollama": Dialect(Ollama(), "/api/chat", {"messages": HELLO}, read_ollama, read_ollama),
}


class Client(ResponseWriter):
    def __init__(self) -> None:
        self.status = 0
        self.got = b""

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        assert not self.status
        self.status = status

    def write(self, chunk: bytes) -> None:
        self.got += chunk

    finish = write

    def abort(self) -> None:
        raise AssertionError

    def unread(self) -> int:
        return 0


def asked(dialect: Dialect, *, stream: bool) -> Translation:
    body = json.dumps({"model": "m", "stream": stream, **dialect.asked}).encode()
    made = dialect.protocol.translate(ProtocolRequest(dialect.path, body, lambda _: True))
    assert isinstance(made, Translation)
    return made


async def streamed(dialect: Dialect, stream: bytes, rng: Random) -> Client:
    """What a client gets of an engine's ``stream``, which comes in pieces with borders anywhere."""
    client = Client()
    writer = TranslatingWriter(client, dialect.protocol, EngineMemory(), TranslationTurns())
    writer.translation = translation = asked(dialect, stream=True)
    reply = Reply(writer, stream_form(translation.path))
    reply.begin(200, b"content-type: text/event-stream\r\n", None, True)
    borders = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(12)))
    problem = None
    for begin, end in zip([0, *borders], borders, strict=False):
        if problem is None and begin < end:
            problem = reply.write(stream[begin:end])
    if problem is None:
        problem = reply.finish(stream[borders[-1] if borders else 0 :])
    if problem is not None:
        reply.fail(error_of(problem), b"r")
    await until(lambda: not writer.unread())
    return client


def error_of(problem: BrokenStream) -> RequestError:
    """As the relay makes it."""
    details = {"error": problem.error}
    words = f"Backend 'a' {problem.why}"
    return EngineRefused(problem.blamed, words, details) if problem.blamed else UpstreamError(words, details=details)


def written(events: list[Event], rng: Random) -> bytes:
    """The events as they stand on the wire."""
    end = rng.choice((b"\n\n", b"\n\n", b"\r\n\r\n"))
    parts = [
        event
        if isinstance(event, bytes)
        else b": %s" % event.encode()
        if isinstance(event, str)
        else b"data: %s" % json.dumps(event).encode()
        for event in events
    ]
    behind = [b": keep-alive"] if rng.random() < 0.05 else []
    return b"".join(part + end for part in [*parts, b"data: [DONE]", *behind])


def compare(name: str, meaning: Meaning, understood: Understood) -> None:
    if meaning.breaks:
        assert understood.error
        assert meaning.error in understood.error
        assert meaning.spoken.startswith(understood.spoken)
        return
    assert not understood.error
    assert (understood.thinking, understood.spoken) == (meaning.thinking, meaning.spoken)
    assert _sorted(understood.calls) == _sorted(meaning.calls)
    assert all(understood.ids)
    assert len({*understood.ids}) == len(meaning.calls)
    assert (understood.prompt, understood.output) == (meaning.prompt, meaning.output)
    if name != "ollama":
        assert understood.cached == meaning.cached
    assert understood.finish == _FINISHES[name](meaning)


def _sorted(calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return sorted(json.dumps(call, sort_keys=True) for call in calls)


def _of_message(meaning: Meaning) -> str:
    cut = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use", "function_call": "tool_use"}
    usual = "tool_use" if meaning.calls else "refusal" if meaning.refusal else "end_turn"
    return cut.get(meaning.finish, usual)


def _of_response(meaning: Meaning) -> str:
    return {"length": "max_output_tokens", "content_filter": "content_filter"}.get(meaning.finish, "completed")


_FINISHES: dict[str, Callable[[Meaning], str]] = {
    "messages": _of_message,
    "responses": _of_response,
    "ollama": lambda meaning: "length" if meaning.finish == "length" else "stop",
}


async def try_stream(seed: int) -> None:
    maker = AnswerMaker(seed)
    events = maker.events()
    stream = written(events, maker.rng)
    for name, dialect in DIALECTS.items():
        client = await streamed(dialect, stream, maker.rng)
        got = client.got
        try:
            if client.status != 200:
                assert client.status == (maker.meaning.status or UpstreamError.status)
                error = json.loads(got)["error"]
                assert maker.meaning.error in (error if isinstance(error, str) else error["message"])
                continue
            assert not maker.meaning.status
            if name != "responses" or seed % 5 == 0:
                compare(name, maker.meaning, dialect.read(got))
            else:
                compare(name, maker.meaning, read_response(got, by_sdk=False))
            if name == "responses":
                _compare_with_codex(maker.meaning, read_as_codex(got))
        except Exception as error:
            raise AssertionError(f"seed {seed}, {name}: {error!r}\n{stream.decode()}\n{got.decode()}") from error


def _compare_with_codex(meaning: Meaning, understood: Understood) -> None:
    if _of_response(meaning) == "completed" or meaning.breaks:
        if meaning.refusal:
            understood.spoken = meaning.spoken
        compare("responses", meaning, understood)


def try_whole(seed: int) -> None:
    maker = AnswerMaker(seed)
    answer = maker.whole()
    for name, dialect in DIALECTS.items():
        got = asked(dialect, stream=False).answer(json.loads(json.dumps(answer)))
        try:
            compare(name, maker.meaning, dialect.read_whole(got))
        except Exception as error:
            raise AssertionError(f"seed {seed}, {name}: {error!r}\n{json.dumps(answer)}\n{got.decode()}") from error


def piece(index: int | None = None, id: str | None = None, name: str | None = None, arguments: str = "") -> Any:
    call = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


TEXT: Any = {"choices": [{"delta": {"content": "so"}}]}
"""Without an index: it is that of the first choice."""
FOUND: dict[str, tuple[list[Any], Meaning]] = {
    "a call that waits is sent once more": (
        [
            piece(0, "a", "f"),
            piece(1, "b", "g"),
            TEXT,
            {
                "choices": [
                    {
                        "delta": {
                            "tool_calls": [
                                {"id": "a", "function": {"name": "f", "arguments": "{}"}},
                                {"id": "b", "function": {"name": "g", "arguments": "{}"}},
                            ]
                        }
                    }
                ]
            },
        ],
        Meaning(text="so", spoken="so", calls=[("f", {}), ("g", {})]),
    ),
    "pieces that alternate, with text between": (
        [
            piece(0, "a", "f", '{"x"'),
            piece(1, "b", "g", '{"y"'),
            TEXT,
            piece(0, arguments=": 1}"),
            piece(1, arguments=": 2}"),
        ],
        Meaning(text="so", spoken="so", calls=[("f", {"x": 1}), ("g", {"y": 2})]),
    ),
    "ids that come later": (
        [piece(0, None, "f", '{"x"'), piece(0, "a", None, ": 1}")],
        Meaning(calls=[("f", {"x": 1})]),
    ),
    "one id for all calls": (
        [piece(0, "a", "f", '{"x": 1}'), piece(1, "a", "f", '{"x": 2}')],
        Meaning(calls=[("f", {"x": 1}), ("f", {"x": 2})]),
    ),
    "one index for all calls": (
        [piece(0, "a", "f", "{}"), piece(0, "b", "f", "{}")],
        Meaning(calls=[("f", {}), ("f", {})]),
    ),
    "usage in an event of a choice without an index": (
        [TEXT, {"choices": [{"index": 0, "delta": None}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}],
        Meaning(text="so", spoken="so", prompt=3, output=2),
    ),
}
"""Streams that have found something."""


@pytest.mark.parametrize(("events", "meaning"), FOUND.values(), ids=FOUND)
async def test_streams_that_have_found_something(events: list[Any], meaning: Meaning) -> None:
    rng = Random(0)
    for name, dialect in DIALECTS.items():
        compare(name, meaning, dialect.read((await streamed(dialect, written(events, rng), rng)).got))


@pytest.mark.parametrize("rest", [b": keep-alive\n\n", b"\n"])
async def test_nothing_follows_the_end(rest: bytes) -> None:
    rng = Random(0)
    for name, dialect in DIALECTS.items():
        client = await streamed(dialect, written([TEXT], rng) + rest, rng)
        compare(name, Meaning(text="so", spoken="so"), dialect.read(client.got))


async def test_streams_mean_what_they_meant() -> None:
    for seed in range(400 * FACTOR):
        await try_stream(seed)


def test_whole_answers_mean_what_they_meant() -> None:
    for seed in range(200 * FACTOR):
        try_whole(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_many_streams_mean_what_they_meant() -> None:
    for seed in range(1_000_000, 1_000_000 + 20_000 * FACTOR):
        await try_stream(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_whole_answers_mean_what_they_meant() -> None:
    for seed in range(1_000_000, 1_000_000 + 5_000 * FACTOR):
        try_whole(seed)
