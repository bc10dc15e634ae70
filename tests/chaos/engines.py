"""Scripted engines: servers in memory that answer as their seed says."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Coroutine
from typing import Any, Protocol

from tests.chaos.answers import Answer, make_answer, whole
from tests.chaos.faults import FAULTS
from tests.chaos.floods import make_flood
from tests.chaos.requests import Head, NotHttp, RequestReader
from tests.chaos.sockets import SocketServing, make_serving, serve_socket
from tests.chaos.streams import Stream

_NONCE = re.compile(rb"nonce-\d+-")
_PROBE = re.compile(rb"GET (/prefix)?/v1/models HTTP/1\.1\r\n([a-z-]+: [^\r\n]+\r\n)+\r\n")
_STALL_S = 1e5


class Serving:
    """One request as an engine got it, and what it answered. ``whole``: all of ``answer`` was sent."""

    def __init__(self, id: str, engine: str, nonce: bytes, target: bytes, body: bytes) -> None:
        self.id = id
        self.engine = engine
        self.nonce = nonce
        self.target = target
        self.body = body
        self.fault = ""
        self.answer: Answer | None = None
        self.whole = False


class Bench(Protocol):
    """What an engine reports to. ``calm``: no faults, whatever the schedule says."""

    calm: bool

    def spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]: ...
    def note(self, who: str, what: str) -> None: ...
    def violated(self, what: str) -> None: ...
    def served(self, serving: Serving) -> None: ...
    def shaken(self, serving: SocketServing) -> None: ...


class Engine:
    """One engine server. ``health`` is how it answers probes; ``fault_rate`` how many of its answers are faulty."""

    def __init__(self, bench: Bench, name: str, models: list[str], rng: random.Random, fault_rate: float) -> None:
        self.name = name
        self.health = "ok"
        self.fault_rate = fault_rate
        self._bench = bench
        self._rng = rng
        self._open: dict[Stream, asyncio.Task[Any]] = {}
        self._served = 0
        listed = {"object": "list", "data": [{"id": model} for model in models]}
        self._listed = whole(200, json.dumps(listed).encode())

    def accept(self) -> Stream:
        stream = Stream()
        self._open[stream] = self._bench.spawn(self._serve(stream))
        return stream

    def crash(self) -> None:
        """Break every connection, as a process does that is killed."""
        for stream, task in list(self._open.items()):
            task.cancel()
            if stream.transport is not None:
                stream.transport.reset()
        self._open.clear()

    # --- one connection

    async def _serve(self, stream: Stream) -> None:
        try:
            await self._serve_requests(stream)
        finally:
            self._open.pop(stream, None)
            if stream.transport is not None:
                stream.transport.close()

    async def _serve_requests(self, stream: Stream) -> None:
        while _PROBE.fullmatch(data := await stream.read()):  # most requests are probes, and h11 takes its time
            if self._floods():
                await self._flood(stream, b"")
                return
            if not await self._send(stream, self._probe()):
                return
        reader = RequestReader(stream, data)
        while (request := await self._request(reader)) is not None:
            if request[0].headers.get(b"upgrade") == b"websocket":
                await self._serve_socket(stream, request[0])
                return
            if self._floods() and self._nonce(*request) is None:
                await self._flood(stream, request[1])
                return
            answer, serving = self._respond(*request)
            if not await self._send(stream, answer):
                return
            if serving is not None:
                serving.whole = True
            if answer.ending != "keep":
                return

    async def _serve_socket(self, stream: Stream, head: Head) -> None:
        nonce = _NONCE.search(head.target)
        self._served += 1
        faults = 0.0 if self._bench.calm else self.fault_rate
        name = f"{self.name}/{self._served}"
        serving = make_serving(self._rng, name, nonce[0] if nonce is not None else b"", faults)
        self._bench.note(name, f"{serving.opens} the WebSocket {serving.nonce.decode()}, {serving.ends}")
        self._bench.shaken(serving)
        await serve_socket(stream, head.wire, serving, self._rng)

    async def _request(self, reader: RequestReader) -> tuple[Head, bytes] | None:
        try:
            head = await reader.head()
            if head is None:
                return None
            body = b"" if self._answers_early(head) else await reader.body(head)
        except NotHttp as error:
            self._bench.violated(f"{self.name} got no HTTP: {error}")
            return None
        if body and reader.data:
            self._bench.violated(f"{self.name} got more than one request at once")
        return None if body is None else (head, body)

    def _answers_early(self, head: Head) -> bool:
        """Whether to answer before the body has come, and never to read it."""
        return (
            head.length > 100_000
            and _NONCE.search(head.headers.get(b"x-request-id", b"")) is not None
            and not self._bench.calm
            and self._rng.random() < 0.5
        )

    async def _flood(self, stream: Stream, question: bytes) -> None:
        """Answer a question of the gateway with far too much."""
        pieces, most = make_flood(self._rng, question)
        sent = 0
        for piece in pieces:
            if stream.closed:
                return
            await stream.write(piece)
            sent += len(piece)
            if sent > most:
                self._bench.violated(f"{self.name}: the gateway reads {sent} bytes of an answer to {question[:100]!r}")
                break
        await asyncio.wait_for(stream.wait_ended(), _STALL_S)

    async def _send(self, stream: Stream, answer: Answer) -> bool:
        for pause, piece in answer.pieces:
            if pause:
                await asyncio.sleep(pause)
            if stream.closed:
                return False
            await stream.write(piece)
        if answer.ending == "reset":
            stream.transport.reset()
        elif answer.ending == "stall":
            await asyncio.wait_for(stream.wait_ended(), _STALL_S)
            return False
        return True

    # --- one answer

    def _nonce(self, head: Head, body: bytes) -> re.Match[bytes] | None:
        in_id = head.headers.get(b"x-request-id", b"")
        return _NONCE.search(body) or _NONCE.search(head.target) or _NONCE.search(in_id)

    def _respond(self, head: Head, body: bytes) -> tuple[Answer, Serving | None]:
        nonce = self._nonce(head, body)
        if nonce is None:
            return self._probe(), None
        self._served += 1
        serving = Serving(f"{self.name}/{self._served}", self.name, nonce[0], head.target, body)
        path = head.target.decode().partition("?")[0].removeprefix("/prefix")
        answer = make_answer(self._rng, path, b'"stream": true' in body, serving.id)
        if not self._bench.calm and self._rng.random() < self.fault_rate:
            serving.fault = self._rng.choice(list(FAULTS))
            answer = FAULTS[serving.fault](self._rng, answer, serving.id)
        if not body and head.method == "POST":  # what comes of the body passes for the next request here
            answer = answer._replace(ending="close" if answer.ending == "keep" else answer.ending)
            serving.fault += ", early"
        serving.answer = answer
        self._bench.note(serving.id, f"serves {nonce[0].decode()} with {answer.status} {serving.fault}")
        self._bench.served(serving)
        return answer, serving

    def _floods(self) -> bool:
        return self.health == "flood" and not self._bench.calm

    def _list(self) -> Answer:
        """The models that it serves."""
        return self._listed

    def _probe(self) -> Answer:
        health = "ok" if self._bench.calm else self.health
        if health == "ok":
            return self._list()
        if health == "slow":
            return self._list()._replace(pieces=((30.0, self._list().wire),))
        return Answer(200, (), (), "reset") if health == "broken" else whole(503, b"{}")
