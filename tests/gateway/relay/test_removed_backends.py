"""A reload may remove a backend while a request is on its way there."""

from __future__ import annotations

import msgspec
import pytest

from enginehouse import Role
from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.domain.replica import Route
from enginehouse.interfaces.observers import Observer
from enginehouse.relay.engine_facts import EngineFacts
from enginehouse.rescheduling import ReschedulingSettings
from tests.support.cluster_views import instance, view
from tests.support.model_engine import Break, StartModelEngine
from tests.support.scripted_engine import Cut, StartEngine
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream
from tests.support.waiting import within
from tests.support.web_sockets import Dial, StartSocketEngine

PATH = "/v1/completions"
BODY: dict[str, object] = {"model": MODEL, "prompt": "Tell", "max_tokens": 40}
VLLM = {"driver": "vllm"}


class Removes(Observer):
    """Removes the backends ``names`` from the configuration once a request is routed to ``routed``."""

    def __init__(self, gateway: ServedGateway, names: str, routed: str) -> None:
        self._gateway = gateway
        self._names = names
        self._routed = routed
        gateway.gateway.observers.add(self)

    def routed(self, request_id: str, requirements: object, route: Route) -> None:
        if route.chosen.backend == self._routed:
            context = self._gateway.relay.context
            for name in self._names:
                context.upstreams.pop(name, None)
            drivers = context.drivers.items()
            context.drivers = {name: driver for name, driver in drivers if name not in self._names}


async def test_a_web_socket_opens(house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial) -> None:
    gateway = await house(await socket_engine())
    Removes(gateway, "a", routed="a")
    socket = await dial(gateway)
    await socket.send("on")
    assert await within(socket.recv()) == "on"


async def test_a_broken_stream_goes_on_at_another_one(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engines = [await model_engine() for _ in "abc"]
    gateway = await house(*engines, backend=VLLM, routing={"strategy": "priority_only"})
    Removes(gateway, "b", routed="b")
    engines[0].breaks = [Break(5, Cut.RESET)]
    reply = await gateway.ask(gateway.post({**BODY, "stream": True}, path=PATH))
    whole = read_stream(b"".join(stream(PATH, msgspec.json.encode({**BODY, "stream": True}))))
    assert read_stream(reply.body).answer == whole.answer
    assert [len(engine.calls) for engine in engines] == [1, 0, 1]


@pytest.mark.parametrize("removed", ["a", "ab"])
async def test_an_engine_reads_a_prompt_that_no_other_one_reads_for_it(
    removed: str, house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, answers = await model_engine(), await model_engine()
    gateway = await house(reads, answers, backend=VLLM, routing={"strategy": "llumnix_load"})
    instances = (instance("a", role=Role.PREFILL), instance("b", role=Role.DECODE))
    gateway.relay.context.router.strategies.on_view(view(*instances), ReschedulingSettings())
    Removes(gateway, removed, routed="b")
    reply = await gateway.ask(gateway.post({**BODY, "stream": True}, path=PATH))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert reads.calls == []
    assert answers.asked()["prompt"] == BODY["prompt"]


async def test_what_it_would_have_said_of_itself_is_not_asked(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    upstream, facts = gateway.relay.context.upstreams["a"], EngineFacts({}, {}, SYSTEM_CLOCK.now)
    assert facts.priority_order(upstream) == 0
