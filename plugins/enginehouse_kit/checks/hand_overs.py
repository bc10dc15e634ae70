"""The conformance check of hand-overs: routes with one engine and with two, and requests that are prepared for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from enginehouse import Candidate, HandOver, RequestError, Role, Route
from enginehouse.drivers import (
    DriverSupport,
    EngineClient,
    EngineResponse,
    SupportsBootstrap,
    SupportsHandOver,
    support_of,
)
from enginehouse.errors import ModelNotFound, UpstreamError
from enginehouse.hand_overs import PairChoice, PrefillEngine
from enginehouse.routing_facts import Reason
from enginehouse_kit.drivers import OpenAICompatibleDriver
from enginehouse_kit.expect import expect, within
from enginehouse_kit.fake_engine import FakeEngineClient
from enginehouse_kit.make import candidate, requirements

_LONGEST_S = 5.0
_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize")
_BODY = b'{"model":"m","prompt":"Hi","messages":[{"role":"user","content":"Hi"}]}'
_ANSWERS = (b'{"kv_transfer_params":{"a":1}}', b"{}", b"nonsense", b'data: {"error":{"message":"no"}}\n\n')
_CANDIDATES = (candidate("a", "m", role=Role.PREFILL), candidate("b", "m", role=Role.DECODE), candidate("c", "m"))


class _Plain(OpenAICompatibleDriver):
    type = "plain"


class _HandsOver(OpenAICompatibleDriver, SupportsHandOver):
    type = "hands_over"


class _Bootstraps(OpenAICompatibleDriver, SupportsBootstrap):
    type = "bootstraps"

    async def bootstrap_port(self, engine: EngineClient) -> int | None:
        return (await engine.request("GET", "/port")).status

    def bootstrap(self, body: bytes, host: str, port: int | None) -> bytes:
        return body[:-1] + b',"port":%d}' % (port or 0)


class _Prefill(PrefillEngine):
    """An engine that gives ``answer``; an exception is raised instead. ``takes``: otherwise it cannot be asked."""

    host = "127.0.0.1"

    def __init__(self, path: str, drivers: Mapping[str, DriverSupport], answer: bytes | Exception, takes: bool) -> None:
        self.path = path
        self.drivers = drivers
        self.process = object()
        self.client = FakeEngineClient({"/port": 200})
        self._answer = answer
        self._takes = takes
        self._taken = False

    async def take(self) -> None:
        expect(not self._taken, "prepare must call take once")
        self._taken = True
        if not self._takes:
            raise UpstreamError("it is gone")

    async def ask(self, body: bytes) -> EngineResponse:
        expect(self._taken and self._takes, "prepare must call take before it asks, and not ask if that fails")
        expect(isinstance(body, bytes), f"ask must get bytes, got {body!r}")
        if isinstance(self._answer, Exception):
            raise self._answer
        return EngineResponse(200, [], self._answer)

    def failed(self, why: str) -> None:
        expect(isinstance(why, str), f"failed must get a text, got {why!r}")


def check_hand_over(factory: Callable[[], HandOver]) -> None:
    """Check a hand-over against the rules of its interface. Raises ``AssertionError``.

    Its routes lead to none of the replicas that failed, and the same choice gives the same route. It takes the engine
    before it asks it, and prepares bytes within 5 seconds, whatever the engine answers.
    """
    for driver in (_Plain(), _HandsOver(), _Bootstraps()):
        drivers = {each.backend: support_of(driver) for each in _CANDIDATES}
        for path in _PATHS:
            for failed in ((), ("m@a",), ("m@a", "m@b", "m@c")):
                _check_route(factory(), path, drivers, failed)
            for answer in (*_ANSWERS, UpstreamError("it broke off")):
                for takes in (True, False):
                    prepared = _check_prepare(factory(), _Prefill(path, drivers, answer, takes))
                    asyncio.run(within(_LONGEST_S, "prepare and what goes on", prepared))


def _check_route(it: HandOver, path: str, drivers: Mapping[str, DriverSupport], failed: tuple[str, ...]) -> None:
    def left(exclude: tuple[str, ...]) -> list[Candidate]:
        return [each for each in _CANDIDATES if each.replica not in exclude]

    def find(exclude: tuple[str, ...]) -> Route:
        expect(set(failed) <= set(exclude), "find must get the replicas that failed")
        if not left(exclude):
            raise ModelNotFound("m")
        return Route("m", left(exclude)[0], Reason.MATCH, ("m",))

    def pick_decode(route: Route, exclude: tuple[str, ...]) -> Candidate | None:
        return left(exclude)[-1]

    choice = PairChoice(requirements("m", path=path), drivers, find, pick_decode)
    first, second = _found(it, choice, failed), _found(it, choice, failed)
    expect(isinstance(first, (Route, str)), f"route must return a Route, got {first!r}")
    expect(first == second, f"route must return the same for the same choice, got {first!r} and {second!r}")
    if isinstance(first, Route):
        used = [each for each in (first.chosen, first.prefill) if each is not None]
        expect(all(each in _CANDIDATES for each in used), f"route must return candidates of the choice, got {used!r}")
        expect(not set(failed) & {each.replica for each in used}, "route must not return a replica that failed")
        expect(len(used) == len({each.replica for each in used}), "the two engines of a route must differ")


def _found(it: HandOver, choice: PairChoice, failed: tuple[str, ...]) -> Any:
    """The route, or the code of the error."""
    try:
        return it.route(choice, failed)
    except RequestError as error:
        return error.code


async def _check_prepare(it: HandOver, prefill: _Prefill) -> None:
    route = replace(Route("m", _CANDIDATES[1], Reason.MATCH, ("m",)), prefill=_CANDIDATES[0])
    try:
        made: Any = await it.prepare(prefill, route, _BODY)
        expect(isinstance(made, tuple) and len(made) == 2, f"prepare must return two values, got {made!r}")
        body, go_on = made
        expect(isinstance(body, bytes), f"prepare must return the body as bytes, got {body!r}")
        expect(go_on is None or callable(go_on), f"prepare must return None, or what goes on, got {go_on!r}")
        if go_on is not None:
            await go_on()
    except RequestError:
        pass
