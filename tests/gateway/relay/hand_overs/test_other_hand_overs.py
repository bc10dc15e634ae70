"""A hand-over of another plugin, right and wrong: a request that it fails gets an error that names it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from enginehouse import ConfigError, HandOver, Role, Route
from enginehouse.errors import UpstreamError
from enginehouse.hand_overs import GoOn, PairChoice, PrefillEngine
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.relay.jobs.pairs import PrefillSlot
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse.routing_facts import Reason
from enginehouse_kit.testing import candidate
from tests.support.cluster_views import instance, view
from tests.support.garbage import left_behind, without_collector
from tests.support.model_engine import ModelEngine, StartModelEngine
from tests.support.registries import registry_with
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.waiting import within

STRANGER = candidate("a", MODEL)
PATH = "/v1/completions"
BODY: dict[str, object] = {"model": MODEL, "prompt": "Tell", "max_tokens": 4}
WRONG: dict[str, Callable[..., Any]] = {}
"""What methods do in place of what is right, by their names."""


class Marks(HandOver):
    """Has the first engine read the prompt while the second one answers, to which a field of the body says so."""

    def route(self, choice: PairChoice, failed: tuple[str, ...]) -> Route:
        if "route" in WRONG:
            wrong: Route = WRONG["route"]()
            return wrong
        route = choice.find(failed)
        decode = choice.pick_decode(route, failed)
        return route if decode is None else replace(route, chosen=decode, prefill=route.chosen)

    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        if "prepare" in WRONG:
            wrong: tuple[bytes, GoOn | None] = WRONG["prepare"]()
            return wrong
        await prefill.take()
        if "take" in WRONG:
            await WRONG["take"](prefill)

        async def go_on() -> None:
            if "go_on" in WRONG:
                WRONG["go_on"]()
            await prefill.ask(body)

        return msgspec.json.encode({**msgspec.json.decode(body), "kept_at": prefill.host}), go_on


def fail() -> None:
    raise SystemExit


def refuse_configuration() -> None:
    raise ConfigError("nothing for a client")


@pytest.fixture(scope="session")
def registry() -> Registry:
    return registry_with("hand_over", "marks", Marks, instead_of="pairs")


@pytest.fixture(autouse=True)
def _right() -> None:
    WRONG.clear()


async def opened(house: OpenGateway, *engines: ModelEngine, timeouts: object = None) -> ServedGateway:
    gateway = await house(*engines, routing={"strategy": "llumnix_load", "max_retries": 0}, timeouts=timeouts or {})
    instances = (instance("a", role=Role.PREFILL), instance("b", role=Role.DECODE))
    gateway.relay.context.router.strategies.on_view(view(*instances), ReschedulingSettings())
    return gateway


async def test_it_knows_a_way_of_its_own(house: OpenGateway, model_engine: StartModelEngine) -> None:
    reads, answers = await model_engine(), await model_engine()
    gateway = await opened(house, reads, answers)
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert answers.asked() == {**BODY, "kept_at": urlsplit(reads.url).hostname}
    [decision] = gateway.relay.context.decisions.last(9)
    assert (decision["prefill"], decision["chosen"]) == ("m@a", "m@b")
    await gateway.quiet()
    assert not any(gateway.pending().values())


@pytest.mark.usefixtures("every_failure")
@pytest.mark.parametrize(
    ("method", "does"),
    [
        ("route", fail),
        ("route", lambda: None),
        ("route", lambda: Route(MODEL, None, Reason.MATCH, (MODEL,))),  # type: ignore[arg-type]
        ("route", lambda: Route(MODEL, STRANGER, Reason.MATCH, (MODEL,))),
        ("take", lambda prefill: prefill.take()),
        ("prepare", fail),
        ("prepare", lambda: None),
        ("prepare", lambda: ("text", None)),
        ("prepare", lambda: (b"{}", "text")),
        ("prepare", refuse_configuration),
        ("go_on", fail),
        ("go_on", refuse_configuration),
    ],
)
async def test_a_request_that_it_fails_names_it(
    method: str, does: Callable[..., Any], house: OpenGateway, model_engine: StartModelEngine
) -> None:
    WRONG[method] = does
    reads, answers = await model_engine(), await model_engine()
    if method == "go_on":
        answers.scripts = [()]
    gateway = await opened(house, reads, answers)
    gateway.gateway.engines.remote.report("a", 1)
    reply = await within(gateway.ask(gateway.post(BODY, path=PATH)))
    assert (reply.status, reply.code) == (500, "plugin_failed")
    assert b"hand_over 'marks'" in reply.body
    await gateway.quiet()
    assert not any(gateway.pending().values())
    WRONG.clear()
    answers.scripts.clear()
    assert (await within(gateway.ask(gateway.post(BODY, path=PATH)))).status == 200, "a slot is lost"


@pytest.mark.parametrize("waits", [False, True])
async def test_one_that_takes_too_long_to_prepare_is_given_up(
    waits: bool, house: OpenGateway, model_engine: StartModelEngine
) -> None:
    """But the wait for a slot is none of its time."""
    slow, reads, answers = asyncio.Event(), await model_engine(), await model_engine()
    gateway = await opened(house, reads, answers, timeouts={"first_byte": 0.1})
    gateway.gateway.engines.remote.report("a", 1)
    if waits:
        context = gateway.relay.context
        [prefill, _] = context.fleet.snapshot.candidates(MODEL)
        occupied = PrefillSlot(InferenceJob(context, PATH, [], b"r"), prefill)
        await occupied.take()
        asyncio.get_running_loop().call_later(0.59, occupied.release)
    else:
        WRONG["take"] = lambda _: slow.wait()
    reply = await within(gateway.ask(gateway.post(BODY, path=PATH)))
    if waits:
        assert reply.status == 200
    else:
        assert (reply.status, reply.code) == (504, "upstream_timeout")
        assert b"The prompt was not read at backend 'a' within 0.2 s" in reply.body
    await gateway.quiet()
    assert not any(gateway.pending().values())


async def test_a_prefill_that_is_no_candidate_fails_the_request(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    gateway = await opened(house, await model_engine(), await model_engine())
    [_, answers] = gateway.relay.context.fleet.snapshot.candidates(MODEL)
    WRONG["route"] = lambda: Route(MODEL, answers, Reason.MATCH, (MODEL,), prefill=STRANGER)
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert (reply.status, reply.code) == (500, "plugin_failed")


async def test_nothing_is_left_to_the_garbage_collector(house: OpenGateway, model_engine: StartModelEngine) -> None:
    gateway = await opened(house, await model_engine(), await model_engine())
    gateway.gateway.engines.remote.report("a", 1)

    async def ask() -> None:
        assert (await gateway.ask(gateway.post({**BODY, "stream": True}, path=PATH))).status == 200
        await gateway.quiet()

    await ask()  # makes what is made once
    with without_collector():
        await ask()
        assert not left_behind()


async def test_its_own_refusal_is_the_clients(house: OpenGateway, model_engine: StartModelEngine) -> None:
    def refuse() -> None:
        raise UpstreamError("no way")

    WRONG["prepare"] = refuse
    gateway = await opened(house, await model_engine(), await model_engine())
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert (reply.status, reply.code) == (502, "upstream_error")


async def test_without_one_each_engine_does_it_all(house: OpenGateway, model_engine: StartModelEngine) -> None:
    WRONG["route"] = asyncio.CancelledError  # it is not asked where no strategy picks two
    gateway = await house(await model_engine(), routing={"strategy": "smart"})
    assert (await gateway.ask(gateway.post(BODY, path=PATH))).status == 200
