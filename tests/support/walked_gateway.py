"""A gateway whose clients, engines, operators and clock take one step at a time, without sockets."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from enginehouse import Observer, ReplicaState, RequestError, RequestRecord
from enginehouse.aio.clock import Clock
from enginehouse.app import Gateway
from enginehouse.config.schema import Config
from enginehouse.engines.state_file import StateFile
from enginehouse.errors import LoadFailed
from enginehouse.relay.upstream.outside import Connector, Origin, Outside
from enginehouse_kit.virtual_loop import VirtualLoop
from tests.chaos.gauges import leftovers
from tests.support.changed_config import reconfigure
from tests.support.garbage import unreachable
from tests.support.http_server import connect, http_server
from tests.support.installed_plugins import installed_plugins
from tests.support.launched_engine import LaunchedEngine
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import END, chunk
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, configure
from tests.support.streaming_model import stream
from tests.support.wire import PlayedWire

Steps = Mapping[str, Callable[[], object]]
"""What may happen now, by its name, the plainest first."""
Choose = Callable[[list[str]], str | None]
"""Picks the next of the possible steps; ``None`` at the end of the walk."""

CHAT = "/v1/chat/completions"
_MESSAGES = [{"role": "user", "content": "Tell"}]
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_WHOLE = b'{"id":"c","choices":[{"index":0,"message":{"content":"Once upon a time"},"finish_reason":"stop"}]}'
_ERROR = b'data: {"error":{"message":"out of memory"}}\n\n'
_TOO_LONG = b'{"error":{"message":"maximum context length is 10 tokens, you requested 20","code":400}}'
_MOST_ASKED = 3
_PAUSES = (0.25, 1.2, 3.0, 12.0)
"""In seconds: two looks of the watchdog; until a hedge or a report; a limit of one step; that of a request."""
_LIMITS = {"connect": 2, "first_byte": 2, "stall": 2, "client": 2, "total": 10}
_DOUBT_S = 3.0
"""After so long, it is known whether an engine has exited that broke a request off."""
_ROUNDS = 100


def _answer(body: bytes, status: int = 200, type: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (status, type, len(body), body)


_INSTEAD = {
    "answers 404": _answer(b'{"error":{"message":"no such model"}}', 404),
    "answers 429": _answer(b'{"error":{"message":"busy"}}', 429),
    "answers 503": _answer(b'{"error":{"message":"loading"}}', 503),
    "is too short": _answer(_TOO_LONG, 400),
    "shows a page": _answer(b"<p>", 200, b"text/html"),
    "is no JSON": _answer(b"{", 200),
}
"""Whole answers that an engine may give in place of what was asked."""


class Setting(NamedTuple):
    """How a gateway is configured, and what its clients ask. ``limit``: of each engine; 0 for none.

    ``launched``: the gateway launches ``a``. ``late``: requests wait for the model, not for a replica. ``holds``:
    answers wait until they are whole. ``accepts``: engines accept connections without a step.
    """

    engines: str = "ab"
    limit: int = 0
    launched: bool = False
    late: bool = False
    hedges: bool = False
    retries: int = 1
    gathers: bool = False
    holds: bool = True
    stream: bool = True
    continuable: bool = True
    reports: bool = False
    accepts: bool = True

    def config(self, engines: str) -> Config:
        backend = {
            "models": [MODEL],
            "driver": "vllm" if self.continuable else "openai",
            **({"concurrency": self.limit} if self.limit else {}),
        }
        return configure(
            (),
            None,
            {each: {**backend, "url": f"http://{each}:1", "priority": ord(each)} for each in engines},
            {
                "routing": {
                    "strategy": "least_pending" if self.late else "priority_only",
                    "max_retries": self.retries,
                    "hedge_after": "1s" if self.hedges else "off",
                    "gather": self.gathers,
                },
                "scheduling": {
                    "queue_timeout": 5,
                    "progress": "comments" if self.reports else "off",
                    "progress_patience": 1,
                },
                "server": {"hold_answers": 1 << 20 if self.holds else 0},
                "timeouts": _LIMITS,
                "rescheduling": {"enabled": True, "migrate_timeout": 2},
                "plugins": {"parameters": {"least_pending": {"seed": 1}}},
            },
        )


class EngineCall:
    """A request that the engine ``name`` has, and what it has not said yet of its answer."""

    def __init__(self, name: str, wire: PlayedWire, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        self.name = name
        self._wire = wire
        self._streams = bool(msgspec.json.decode(body).get("stream"))
        self._began = False
        if self._streams:
            self._pieces = [*map(chunk, stream(path, body)), END]
            self._pieces[0] = _STREAM + self._pieces[0]
        else:
            whole = _answer(_WHOLE)
            self._pieces = [whole[:-40], whole[-40:-20], whole[-20:]]

    @property
    def is_open(self) -> bool:
        return bool(self._pieces) and not self._wire.is_closing()

    def steps(self) -> Steps:
        steps: dict[str, Callable[[], object]] = {"says the rest": self.say_rest}
        if len(self._pieces) > 1:
            steps["says a piece"] = lambda: self._say(self._pieces.pop(0))
            steps["says half a piece"] = self._say_half
        if not self._began:
            steps["says its head"] = self._say_head
            steps |= {name: partial(self._end, answer) for name, answer in _INSTEAD.items()}
        if self._streams and len(self._pieces) > 1:
            head = b"" if self._began else _STREAM
            steps["says an error"] = lambda: self._end(head + chunk(_ERROR) + END)
            steps["says it is too short"] = lambda: self._end(head + chunk(b"data: %s\n\n" % _TOO_LONG) + END)
            steps["ends early"] = lambda: self._end(head + END)
        steps["says garbage"] = lambda: self._end(b"\0garbage")
        steps["breaks"] = lambda: self._wire.receives(ConnectionResetError("reset"))
        steps["closes"] = lambda: self._wire.receives(None)
        return steps

    def say_rest(self) -> None:
        self._end(b"".join(self._pieces))

    def _say_head(self) -> None:
        head, end, self._pieces[0] = self._pieces[0].partition(b"\r\n\r\n")
        self._say(head + end)

    def _say_half(self) -> None:
        piece = self._pieces[0]
        half = len(piece) // 2
        self._pieces[0] = piece[half:]
        self._say(piece[:half])

    def _say(self, data: bytes) -> None:
        self._began = True
        self._wire.receives(data)

    def _end(self, data: bytes) -> None:
        self._pieces = []
        self._say(data)


class Dial(NamedTuple):
    """A connection to an engine that is being made."""

    engine: str
    accepted: asyncio.Future[bool]


class PlayedEngines(Connector):
    """The engines, and the way to them."""

    def __init__(self, accepts: bool) -> None:
        self._accepts = accepts
        self._dials: list[Dial] = []
        self._calls: list[EngineCall] = []

    async def connect(self, protocol: asyncio.Protocol, origin: Origin, tls: ssl.SSLContext | None) -> None:
        if not self._accepts:
            dial = Dial(origin.host, asyncio.get_running_loop().create_future())
            self._dials.append(dial)
            if not await dial.accepted:
                raise ConnectionRefusedError("refused")
        wire = PlayedWire(protocol, lambda data: self._calls.append(EngineCall(origin.host, wire, data)))
        protocol.connection_made(wire)

    def dials(self) -> list[Dial]:
        """The connections that are being made."""
        return [dial for dial in self._dials if not dial.accepted.done()]

    def calls(self) -> dict[str, EngineCall]:
        """The requests that engines have not answered, each by its engine, and its number there if not the first."""
        named: dict[str, EngineCall] = {}
        for call in self._calls:
            if call.is_open:
                number = 1 + sum(other.name == call.name for other in named.values())
                named[call.name if number == 1 else f"{call.name}{number}"] = call
        return named

    def steps(self) -> Steps:
        steps: dict[str, Callable[[], object]] = {}
        for engine, accepted in self.dials():
            steps.setdefault(f"{engine} accepts", partial(accepted.set_result, True))
            steps.setdefault(f"{engine} refuses", partial(accepted.set_result, False))
        for name, call in self.calls().items():
            steps |= {f"{name} {what}": step for what, step in call.steps().items()}
        return steps


class AskingClient:
    """A client, and what it got. ``left``: it was gone before the gateway was done with its request."""

    def __init__(self, number: int, protocol: asyncio.Protocol, setting: Setting) -> None:
        self.number = number
        self.id = f"r{number}"
        self.left = False
        self._got = bytearray()
        self.wire = PlayedWire(protocol, self._got.extend)
        protocol.connection_made(self.wire)
        fields = {"model": MODEL, "messages": _MESSAGES, "stream": setting.stream, "max_tokens": 3}
        self.body = msgspec.json.encode(fields)
        lines = (f"POST {CHAT} HTTP/1.1", "host: x", f"x-request-id: {self.id}", f"content-length: {len(self.body)}")
        protocol.data_received("\r\n".join((*lines, "", "")).encode() + self.body)

    def answer(self) -> RawResponse | None:
        """What it got; ``None`` if that is not even a head."""
        head, found, rest = bytes(self._got).partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.split(b"\r\n")
        pairs = [(name.lower(), value) for name, _, value in (line.partition(b": ") for line in lines)]
        status, length = int(first.split(b" ")[1]), dict(pairs).get(b"content-length")
        if length is not None:
            return RawResponse(status, pairs, rest, len(rest) == int(length))
        body = bytearray()
        while (size := int(rest.partition(b"\r\n")[0] or b"0", 16)) > 0:
            rest = rest.partition(b"\r\n")[2]
            body += rest[:size]
            rest = rest[size + 2 :]
        return RawResponse(status, pairs, bytes(body), rest == b"0\r\n\r\n")


class _Noted(Observer):
    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def finished(self, record: RequestRecord) -> None:
        self.records.append(record)


class WalkedGateway:
    """A gateway, and all that may happen to it."""

    def __init__(self, setting: Setting, loop: VirtualLoop, state: Path) -> None:
        time = loop.virtual_time
        clock = Clock(lambda: time.now, lambda: 1_700_000_000.0 + time.now)
        self._setting = setting
        self.engines = PlayedEngines(setting.accepts)
        outside = Outside(clock, self.engines, lambda: 0.5)
        self.gateway = Gateway(setting.config(setting.engines), installed_plugins(), outside=outside)
        self.gateway.build_hosts(StateFile(state))
        self.clients: list[AskingClient] = []
        self._server = http_server(self.gateway)
        self._names = setting.engines
        for name in self._names:
            self.gateway.fleet.succeeded(name)
        self._launched = LaunchedEngine(self, "a", setting.limit) if setting.launched else None
        self._moves: list[asyncio.Task[Any]] = []
        self._noted = _Noted()
        self.gateway.observers.add(self._noted)
        self._stops = 0

    # --- what may happen

    def steps(self) -> Steps:
        """What may happen now."""
        steps: dict[str, Callable[[], object]] = {}
        if len(self.clients) < _MOST_ASKED and not self._stops:
            steps["ask"] = self._ask
        steps |= self.engines.steps()
        for client in self.clients:
            steps |= self._steps_of(client)
        steps["look"] = self._look
        for pause in _PAUSES:
            steps[f"{pause:g} s pass"] = partial(asyncio.sleep, pause)
        steps |= self._operators_steps()
        return steps

    def _steps_of(self, client: AskingClient) -> Iterator[tuple[str, Callable[[], object]]]:
        relay, number = self.gateway.relay, client.number
        if not client.wire.is_closing():
            slow = client.wire.is_slow
            yield f"{number} {'reads on' if slow else 'pauses'}", partial(client.wire.turn_slow, not slow)
            yield f"{number} leaves", partial(self._leave, client)
        if found := relay.find(client.id):
            yield f"cancel {number}", found[0].cancel
            if found[0].why_not_movable is None:
                for name in self._names:
                    yield f"move {number} to {name}", partial(self._move, client.id, name)

    def _operators_steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        fleet, drains, launched = self.gateway.fleet, self.gateway.relay.drains, self._launched
        for backend in fleet.backends():
            name = backend.name
            if backend.draining:
                yield f"undrain {name}", partial(fleet.undrain, name)
            else:
                yield f"drain {name}", partial(self._drain, name)
            if drains.live(name):
                yield f"vacate {name}", partial(drains.vacate, f"{MODEL}@{name}")
                yield f"cut off {name}", partial(drains.cut_off, f"{MODEL}@{name}", "its engine stops")
            if backend.health != "healthy":
                yield f"{name} is well", partial(fleet.succeeded, name)
        if launched is not None:
            if launched.is_starting:
                yield "a starts", launched.gets_ready
                yield "a does not start", partial(launched.does_not_start, LoadFailed("no memory"))
            elif launched.state is ReplicaState.READY:
                yield "a exits", launched.exits
        elif not self._stops:
            yield "change the strategy", self._change_strategy
            if len(self._names) > 1:
                yield f"remove {self._names[0]}", self._remove
        if not self._stops:
            yield "refuse new", partial(self._stop, self.gateway.refuse_new)
        elif self._stops == 1:
            yield "end all", partial(self._stop, self.gateway.end_live)

    def _ask(self) -> None:
        self.clients.append(AskingClient(len(self.clients) + 1, connect(self._server), self._setting))

    def _look(self) -> None:
        for request in self.gateway.relay.live:
            request.state()

    def _leave(self, client: AskingClient) -> None:
        client.left = bool(self.gateway.relay.find(client.id))
        client.wire.receives(None)

    def _move(self, request_id: str, destination: str) -> None:
        self._moves.append(asyncio.ensure_future(self.gateway.relay.move(request_id, destination)))

    def _drain(self, name: str) -> None:
        self.gateway.fleet.drain(name)
        self.gateway.relay.drains.begin(name)

    def _remove(self) -> None:
        self._names = self._names[1:]
        self._reload()

    def _change_strategy(self) -> None:
        self._setting = self._setting._replace(late=not self._setting.late)
        self._reload()

    def _reload(self) -> None:
        reconfigure(self.gateway, self._setting.config(self._names))

    def _stop(self, step: Callable[[], None]) -> None:
        self._stops += 1
        step()

    # --- the end

    async def finish(self) -> None:
        """Let clients read, engines accept and answer, and time pass, until nothing is live."""
        for _ in range(_ROUNDS):
            for client in self.clients:
                client.wire.turn_slow(False)
            for dial in self.engines.dials():
                dial.accepted.set_result(True)
            if self._launched is not None and self._launched.is_starting:
                await self._launched.gets_ready()
            await settle()
            if not self.gateway.relay.live and all(move.done() for move in self._moves):
                break
            for call in self.engines.calls().values():
                call.say_rest()
            await asyncio.sleep(0.3)
        await asyncio.sleep(_DOUBT_S)

    async def close(self) -> None:
        """Let every client leave, and stop the gateway."""
        for client in self.clients:
            if not client.wire.is_closing():
                client.wire.receives(None)
        await settle()
        await self.gateway.stop()
        await asyncio.sleep(5)

    def faults(self) -> Iterator[str]:
        """What must not be, once all is finished."""
        yield from leftovers(self.gateway, ())
        for name in self.engines.calls():
            yield f"{name} still has a request"
        for client in self.clients:
            yield from (f"{client.id}: {fault}" for fault in self._faults_of(client))
        for move in self._moves:
            error = move.exception() if move.done() and not move.cancelled() else None
            if error is not None and not isinstance(error, RequestError):
                yield f"a move failed with {error!r}"

    def _faults_of(self, client: AskingClient) -> Iterator[str]:
        records = [record for record in self._noted.records if record.id == client.id]
        if len(records) != 1:
            yield f"{len(records)} records"
            return
        record, answer = records[0], client.answer()
        recorded = f"the record says {record.status} {record.outcome} {record.code}"
        if client.left:
            if (record.status, record.outcome) != (499, "client_left"):
                yield f"the client left, and {recorded}"
        elif answer is None or not answer.whole:
            if not client.wire.is_closing() or (record.status < 400 and not client.wire.has_lost):
                yield f"the client got {answer}, and {recorded}"
        elif answer.header("content-type") != "application/json":
            yield from self._stream_faults(client, answer, record, recorded)
        elif answer.status != record.status or (answer.status >= 400) != (record.outcome != "served"):
            yield f"the client got {answer.status} {answer.body!r}, and {recorded}"

    def _stream_faults(
        self, client: AskingClient, answer: RawResponse, record: RequestRecord, recorded: str
    ) -> Iterator[str]:
        seen = read_stream(answer.body)
        if seen.error is not None:
            if record.status < 400:
                yield f"the client got {seen.error}, and {recorded}"
        elif record.status != 200 or record.outcome != "served":
            yield f"the client got a whole stream, and {recorded}"
        elif not seen.ended or seen.finish is None:
            yield f"the client got a part of a stream, and {recorded}"
        elif len(record.attempts) == 1 and not answer.body.endswith(b"".join(stream(CHAT, client.body))):
            yield f"the client got {answer.body!r}"


async def settle() -> None:
    """Let everything happen that takes no time."""
    for _ in range(12):
        await asyncio.sleep(0)


class _ErrorLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"in the log: {self.format(record)}")


def walk(setting: Setting, choose: Choose) -> list[str]:
    """Take the steps that are chosen; then finish. Returns what must not be.

    The garbage collector must not run, as ``without_collector`` sees to.
    """
    loop = VirtualLoop()
    errors = _ErrorLines()
    loop.set_exception_handler(lambda _, context: errors.lines.append(f"from the loop: {context}"))
    root = logging.getLogger()
    root.addHandler(errors)
    try:
        with TemporaryDirectory() as state:
            return [*loop.run_until_complete(_walk(setting, choose, loop, Path(state))), *errors.lines]
    finally:
        root.removeHandler(errors)
        loop.close()


async def _walk(setting: Setting, choose: Choose, loop: VirtualLoop, state: Path) -> list[str]:
    world = WalkedGateway(setting, loop, state)
    gc.collect()
    while (step := choose([*(steps := world.steps())])) is not None:
        awaited = steps[step]()
        if inspect.isawaitable(awaited):
            await awaited
        await settle()
    await world.finish()
    faults = [*world.faults()]
    cycles = Counter(type(each).__qualname__ for each in unreachable() if _is_of_requests(each))
    faults += [f"left to the garbage collector: {count} {name}" for name, count in cycles.items()]
    await world.close()
    faults += [f"left running: {task}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
    return faults + [f"left set: {timer}" for timer in loop.pending()]


def _is_of_requests(each: object) -> bool:
    """Whether it is a part of a request, or keeps the frames of one. A reload may leave cycles with upstreams."""
    module = type(each).__module__
    if isinstance(each, BaseException):
        return each.__traceback__ is not None
    return module.startswith("enginehouse.relay") and not module.startswith("enginehouse.relay.upstream")
