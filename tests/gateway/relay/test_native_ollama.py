"""Engines that speak Ollama's protocol themselves: their tokens count, and their streams must be whole."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from enginehouse.domain.tokens import Tokens
from enginehouse.fleet.fleet import Fleet
from enginehouse_kit.protocols import Native, NativeAnswer
from enginehouse_protocols.ollama.native import EngineLines
from enginehouse_protocols.ollama.protocol import Ollama
from tests.support.noted_records import NotedRecords
from tests.support.scripted_engine import ScriptedEngine, StartEngine, chunk
from tests.support.served_gateway import OpenGateway, ServedGateway

PATHS = ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"


def line(**fields: object) -> bytes:
    return json.dumps({"model": "m", "message": {"content": "a"}, "response": "a", **fields}).encode() + b"\n"


PIECE = line(done=False)
LAST = line(done=True, context=[1] * 9000, prompt_eval_count=12, eval_count=34)


async def opened(house: OpenGateway, engine: StartEngine) -> tuple[ServedGateway, ScriptedEngine, NotedRecords]:
    served = await engine()
    gateway = await house(served, models={"m": {"endpoints": list(PATHS)}})
    return gateway, served, NotedRecords(gateway)


async def last(gateway: ServedGateway, noted: NotedRecords) -> tuple[Any, ...]:
    await gateway.quiet()
    record = noted.records[-1]
    return record.status, record.outcome, record.tokens_in, record.tokens_out


@pytest.mark.parametrize("path", PATHS[:2])
@pytest.mark.parametrize("size", [1, 1000, 100_000])
async def test_the_tokens_of_a_stream_count(house: OpenGateway, engine: StartEngine, path: str, size: int) -> None:
    gateway, served, noted = await opened(house, engine)
    lines = PIECE + LAST
    pieces = [PIECE, *(LAST[at : at + size] for at in range(0, len(LAST), max(size, 1000)))] if size > 1 else [lines]
    served.plays(HEAD, *map(chunk, pieces), served.END)
    reply = await gateway.ask(gateway.post(path=path))
    assert (reply.value("x-enginehouse-protocol"), reply.body, reply.whole) == ("native", lines, True)
    assert await last(gateway, noted) == (200, "served", 12, 34)


@pytest.mark.parametrize("path", PATHS)
async def test_the_tokens_of_a_whole_answer_count(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway, served, noted = await opened(house, engine)
    served.says(LAST)
    reply = await gateway.ask(gateway.post(path=path, stream=False))
    assert (reply.status, reply.body) == (200, LAST)
    assert await last(gateway, noted) == (200, "served", 12, 34)


@pytest.mark.parametrize("said", [b'{"model":"m"}', b'{"done":"x","eval_count":"y"}', b"[]", b'{"done":true}'])
async def test_what_counts_nothing_passes(house: OpenGateway, engine: StartEngine, said: bytes) -> None:
    gateway, served, noted = await opened(house, engine)
    served.says(said)
    assert (await gateway.ask(gateway.post(path="/api/chat", stream=False))).body == said
    assert await last(gateway, noted) == (200, "served", None, None)
    served.says(b'{"error":"no"}', 404)
    assert (await gateway.ask(gateway.post(path="/api/chat"))).status == 404
    assert (await last(gateway, noted))[:2] == (404, "engine_error")


@pytest.mark.parametrize("rest", [b"", LAST[:40], LAST[:-3]])
async def test_a_stream_without_its_last_line_is_broken(house: OpenGateway, engine: StartEngine, rest: bytes) -> None:
    gateway, served, noted = await opened(house, engine)
    served.plays(HEAD, chunk(PIECE), *([chunk(rest)] if rest else []), served.END)
    reply = await gateway.ask(gateway.post(path="/api/chat"))
    assert (reply.status, reply.whole) == (200, False)
    assert await last(gateway, noted) == (502, "upstream_error", None, None)


@pytest.mark.parametrize("apart", [False, True])
async def test_a_stream_that_ends_with_an_error_is_told_as_it_is(
    house: OpenGateway, engine: StartEngine, apart: bool
) -> None:
    gateway, served, noted = await opened(house, engine)
    error = b'{"error":"out of memory"}\n'
    end = [chunk(error), served.END] if apart else [chunk(error) + served.END]
    served.plays(HEAD, chunk(PIECE), *end)
    reply = await gateway.ask(gateway.post(path="/api/chat"))
    assert (reply.status, reply.body, reply.whole) == (200, PIECE + error, True)
    assert await last(gateway, noted) == (502, "upstream_error", None, None)
    assert "out of memory" in str(noted.records[-1].message)


async def test_a_line_that_is_too_long_passes_uncounted(house: OpenGateway, engine: StartEngine) -> None:
    gateway, served, noted = await opened(house, engine)
    lines = line(done=False, response="x" * (2 << 20))
    served.plays(HEAD, chunk(lines), served.END)
    reply = await gateway.ask(gateway.post(path="/api/generate"))
    assert (reply.body, reply.whole) == (lines, True)
    assert await last(gateway, noted) == (200, "served", None, None)


def test_a_last_line_in_pieces_behind_one_that_is_too_long() -> None:
    answer = EngineLines()
    for piece in (line(done=False, response="x" * (2 << 20)), LAST[:40], LAST[40:]):
        answer.read(piece, last=False)
    answer.read(b"", last=True)
    assert answer.tokens == Tokens(12, 34)


@pytest.mark.parametrize("count", [-5, 1 << 53, 1.5, True, "12"])
def test_what_is_no_count_counts_nothing(count: object) -> None:
    answer = EngineLines()
    answer.read(line(done=True, prompt_eval_count=count, eval_count=7), last=True)
    assert answer.tokens == Tokens(0, 7)


class Odd(NativeAnswer):
    """Says nonsense, or fails."""

    def __init__(self, **said: Any) -> None:
        vars(self).update(said)

    def read(self, piece: bytes, *, last: bool) -> None:
        if error := vars(self).get("raises"):
            raise error


class OfTexts(NativeAnswer):
    """Counts with texts, which compiled ``Tokens`` do not take."""

    def read(self, piece: bytes, *, last: bool) -> None:
        self.tokens = Tokens("1", 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [
        Odd(raises=ZeroDivisionError),
        Odd(raises=SystemExit),
        Odd(tokens="many"),
        Odd(error="no"),
        OfTexts(),
        object(),
    ],
)
async def test_what_a_protocol_says_wrong_of_an_answer_hurts_nobody(
    house: OpenGateway,
    engine: StartEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
) -> None:
    monkeypatch.setattr(Ollama, "native", lambda self, request: Native(answer=answer))
    gateway, served, noted = await opened(house, engine)
    served.says(LAST)
    assert (await gateway.ask(gateway.post(path="/api/chat", stream=False))).body == LAST
    assert await last(gateway, noted) == (200, "served", None, None)
    assert "The protocol 'ollama' failed" in caplog.text


async def test_a_whole_answer_that_is_cut_off_is_no_success_of_its_engine(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, served, noted = await opened(house, engine)
    succeeded: list[str] = []
    monkeypatch.setattr(Fleet, "succeeded", lambda self, name: succeeded.append(name))
    served.says(PIECE)
    with pytest.raises(asyncio.IncompleteReadError):  # the connection is closed
        await gateway.ask(gateway.post(path="/api/chat", stream=False))
    assert await last(gateway, noted) == (502, "upstream_error", None, None)
    assert succeeded == []
