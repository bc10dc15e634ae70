"""No request leaves its zone: with fallbacks, retries, moves, hedges, breaks and engines that die."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import msgspec
import pytest

from enginehouse import Body, Driver, InferenceRequest, RequestError
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.requests import Message
from enginehouse_sim.simulator.replay.played_connection import HttpRequest, PlayedConnection
from enginehouse_sim.virtual import VirtualClient, VirtualEngines, VirtualGateway, VirtualProcess
from enginehouse_vllm.driver import VllmDriver
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]

AT_ONCE = 40
ZONES = ("private", "lab", "")
BACKENDS = {f"{zone or 'open'}-{number}": zone for zone in ZONES for number in range(3)}
MODELS = ("m", "secret", "n")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def config() -> Config:
    backends = {
        name: {"url": "http://x", "driver": "vllm", "zone": zone, "models": list(MODELS)}
        for name, zone in BACKENDS.items()
    }
    return msgspec.convert(
        {
            "backends": backends,
            "zones": {
                "private": {"models": ["secret"], "headers": ["x-zone: private"]},
                "lab": {"headers": ["x-zone: lab"]},
            },
            "routing": {
                "strategy": "random",
                "max_retries": 4,
                "retry_budget": 1.0,
                "hedge_after": "300ms",
                "aliases": {"gpt-4": ["m", "secret"]},
                "fallbacks": {"n": ["m", "secret"], "secret": ["m"]},
            },
            "checks": {"interval": 0.5, "failures": 2, "successes": 1},
        },
        Config,
    )


TOKENS = {"private": b"900001", "lab": b"900002", "any": b"900003", "": b"900003"}
"""The token of every text of a zone, by which it is known where texts are sent as token ids."""


def zone_of(body: bytes) -> str:
    """The zone of the text in ``body``; empty without one."""
    if b"zone=" in body:
        return body.partition(b"zone=")[2].partition(b";")[0].decode()
    return next((zone for zone, token in TOKENS.items() if token in body), "")


class LeakyWorld(VirtualEngines):
    """Engines that answer, refuse, hang, break off and die as chance wants. ``leaks``: what came to a wrong zone.

    The text of a request tells its zone.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.leaks: list[tuple[str, str]] = []
        self.seen: Counter[str] = Counter()
        self.dead: set[str] = set()
        self.moves = 0
        self._streams = BackgroundTasks()

    def connect(self, backend: str, connection: asyncio.Protocol) -> None:
        def serve(transport: PlayedConnection, request: HttpRequest) -> None:
            self._note(backend, request.body)
            if backend in self.dead:
                transport.break_off()
            elif request.path == "/tokenize":
                tokens = b'{"tokens":[%s],"count":1,"max_model_len":4096}' % TOKENS[zone_of(request.body)]
                transport.answer(200, tokens)
            elif zone_of(request.body):
                self._serve(transport, request.body)
            else:
                transport.answer(200 if request.path == "/health" else 404, b"{}")

        connection.connection_made(PlayedConnection(connection, serve, lambda _: None))

    def driver(self, *, bootstraps: bool) -> Driver:
        return VllmDriver()

    async def launch(self, process: VirtualProcess) -> None:
        raise AssertionError("nothing is launched")

    async def stop(self, process: VirtualProcess) -> None:
        raise AssertionError("nothing is launched")

    def _note(self, backend: str, body: bytes) -> None:
        self.seen[backend] += 1
        zone = zone_of(body)
        if zone not in ("", "any", BACKENDS[backend]):
            self.leaks.append((backend, zone))

    def _serve(self, transport: PlayedConnection, body: bytes) -> None:
        fate = self.chance.random()
        if fate < 0.1:
            transport.break_off()
        elif fate < 0.2:
            transport.answer(self.chance.choice((429, 500, 503)), b'{"error":{"message":"no"}}')
        elif fate < 0.3:
            return  # it hangs
        elif b'"stream":true' in body:
            self._streams.start(self._stream(transport, breaks=fate < 0.6))
        else:
            transport.answer(200, b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"a"}}]}')

    async def _stream(self, transport: PlayedConnection, breaks: bool) -> None:
        transport.send(_HEAD)
        for number in range(8):
            await asyncio.sleep(0.1)
            if breaks and number == 5:
                transport.break_off()
                return
            transport.send(_chunk(_event(f"word{number} ", None)))
        transport.send(_chunk(_event("", "stop")) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _event(text: str, reason: str | None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Client(VirtualClient):
    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.code = ""

    def answered(self) -> None:
        pass

    def ended(self, status: int, code: str) -> None:
        self.code = code
        self.end.set()


async def ask(
    world: LeakyWorld, gateway: VirtualGateway, chance: random.Random, number: int, codes: Counter[str]
) -> None:
    model, wanted = chance.choice((*MODELS, "gpt-4")), chance.choice(("private", "lab", ""))
    zone = "private" if model == "secret" else wanted or "any"
    headers = [(b"x-request-id", b"r%d" % number)]
    if wanted and not (model == "secret" and wanted == "lab"):
        headers.append((b"x-zone", wanted.encode()))
    stream, text = chance.random() < 0.7, f"zone={zone};"
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream, "max_tokens": 50}
    decoded = Body(model=model, messages=[Message(content=text)], stream=stream)
    client = Client()
    request = InferenceRequest("/v1/chat/completions", headers, b"", decoded)
    gateway.submit(request, msgspec.json.encode(body), client)
    mover = (
        asyncio.ensure_future(_move(world, gateway, f"r{number}", zone, chance))
        if stream and chance.random() < 0.3
        else None
    )
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(client.end.wait(), 1000)
    codes[client.code] += 1
    if mover is not None:
        mover.cancel()


async def _move(world: LeakyWorld, gateway: VirtualGateway, id: str, zone: str, chance: random.Random) -> None:
    """Move a stream to any backend, or to one of its zone."""
    await asyncio.sleep(0.35)
    near = [name for name, of in BACKENDS.items() if of == zone] if chance.random() < 0.5 else []
    with suppress(RequestError):
        await gateway._gateway.relay.move(id, chance.choice(near or list(BACKENDS)))
        world.moves += 1


async def die_and_return(world: LeakyWorld, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(3)
        world.dead = set(chance.sample(list(BACKENDS), chance.randrange(4)))


@pytest.mark.parametrize(
    ("seed", "requests"),
    [
        (0, 20),
        pytest.param(0, 250, marks=pytest.mark.long),
        pytest.param(1, 10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_no_request_leaves_its_zone(in_virtual_time: Run, seed: int, requests: int) -> None:
    async def scenario() -> None:
        chance, codes = random.Random(seed), Counter[str]()
        world = LeakyWorld(seed)
        gateway = VirtualGateway(config(), load_plugins(PluginSettings()).registry, world, seed)
        await gateway.open()
        deaths = asyncio.ensure_future(die_and_return(world, chance))
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with room:
                await ask(world, gateway, chance, number, codes)

        await asyncio.gather(*(one(number) for number in range(requests)))
        deaths.cancel()
        counts = gateway.counts
        await gateway.close()
        assert world.leaks == []
        assert set(world.seen) == set(BACKENDS)
        happened = min(*(counts[how] for how in ("retried", "hedged", "continued")), world.moves)
        assert requests < 100 or happened > requests // 100  # a few requests may meet nothing of one kind
        assert codes[""] > requests // 2

    in_virtual_time(scenario())
