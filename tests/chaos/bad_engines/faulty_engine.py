"""An engine whose health checks are good, and whose answers go wrong in one of sixteen ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from tests.support.scripted_engine import END, Cut, ReceivedCall, ScriptedEngine, Step, chunk
from tests.support.streaming_model import stream

MODEL = "m"
_CHAT = "/v1/chat/completions"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"


class Saying:
    """A right answer: its head and the pieces of its body."""

    def __init__(self, path: str, body: bytes, streamed: bool, pieces: list[bytes]) -> None:
        self.path = path
        self.body = body
        self.streamed = streamed
        self.head = _HEAD % (b"text/event-stream" if streamed else b"application/json")
        self.pieces = pieces

    @property
    def half(self) -> tuple[bytes, ...]:
        """The head, and three pieces of the body."""
        return (self.head, *map(chunk, self.pieces[:3]))

    @property
    def whole(self) -> tuple[bytes, ...]:
        return (self.head, *map(chunk, self.pieces), END)


class _Pause(asyncio.Event):
    """A step that lasts a while."""

    async def wait(self) -> Literal[True]:
        await asyncio.sleep(0.1)
        return True


Fault = Callable[[Saying], Iterable[Step]]


def _answers(status: int) -> Fault:
    refusal = ScriptedEngine.answer(b'{"error": {"message": "no", "type": "engine", "code": %d}}' % status, status)
    return lambda _: (refusal,)


def _hang() -> asyncio.Event:
    return asyncio.Event()


def _error(saying: Saying) -> Iterable[Step]:
    error = b'{"error": {"message": "CUDA error", "type": "engine", "code": 500}}'
    if not saying.streamed:
        return (ScriptedEngine.answer(error),)
    return (*saying.half, chunk(b"data: " + error + b"\n\n"), chunk(b"data: [DONE]\n\n"), END)


def _garbage(saying: Saying) -> Iterable[Step]:
    bad = b'data: {"choices": [{"index": 0, "del\x00\n\n' if saying.streamed else b'\x00"}{'
    return (*saying.half, chunk(bad), *map(chunk, saying.pieces[3:]), END)


def _endless(saying: Saying) -> Iterable[Step]:
    """The model's words, however many were asked for."""
    fields = {**msgspec.json.decode(saying.body), "max_tokens": 1000}
    longer = right_answer(saying.path, msgspec.json.encode(fields))
    return (saying.head, *(step for piece in longer.pieces for step in (_Pause(), chunk(piece))), _hang())


FAULTS: dict[str, Fault] = {
    "dies before the head": lambda _: (Cut.RESET,),
    "answers 500": _answers(500),
    "answers 503": _answers(503),
    "answers 429": _answers(429),
    "answers 404": _answers(404),
    "hangs before the head": lambda _: (_hang(),),
    "hangs after the head": lambda saying: (saying.head, _hang()),
    "hangs in the middle": lambda saying: (*saying.half, _hang()),
    "closes in the middle": lambda saying: (*saying.half, Cut.CLOSE),
    "resets in the middle": lambda saying: (*saying.half, Cut.RESET),
    "ends too early": lambda saying: (*saying.half, END),
    "loses the framing": lambda saying: (*saying.half, b"zz\r\n"),
    "sends garbage": _garbage,
    "answers with a page": lambda _: (
        ScriptedEngine.answer(b"<html>out of order</html>").replace(b"application/json", b"text/html"),
    ),
    "sends an error": _error,
    "never ends": _endless,
}


class FaultyEngine(ScriptedEngine):
    """Speaks as a vLLM does, and answers every request of a client with ``fault`` while there is one."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__("http")
        self.fault = fault

    @property
    def asked(self) -> int:
        """How many chats have reached it."""
        return sum(call.request_line.startswith(b"POST") for call in self.calls)

    def arrived(self, call: ReceivedCall) -> tuple[Step, ...]:
        self.calls.append(call)
        method, path, _ = call.request_line.decode().split(" ")
        if path == "/v1/models":
            return (self.answer(b'{"object": "list", "data": [{"id": "%s"}]}' % MODEL.encode()),)
        if method == "GET":
            return (self.answer(b"{}", 200 if path == "/health" else 404),)
        saying = right_answer(path, call.body)
        return tuple(saying.whole if self.fault is None else self.fault(saying))


def right_answer(path: str, body: bytes) -> Saying:
    """What the model says to a request, in pieces."""
    fields = msgspec.json.decode(body)
    events = list(stream(path, body))
    if fields.get("stream"):
        return Saying(path, body, True, events)
    text, _ = said_in(events)
    message = {"role": "assistant", "content": text}
    whole = msgspec.json.encode({"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": "length"}]})
    return Saying(path, body, False, [whole[at : at + 20] for at in range(0, len(whole), 20)])


def said_in(events: Iterable[bytes]) -> tuple[str, bool]:
    """The text of a chat's events, and whether the last one is there."""
    text, done = "", False
    for event in events:
        data = event.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            done = True
            continue
        for choice in msgspec.json.decode(data)["choices"]:
            text += choice["delta"].get("content") or ""
    return text, done
