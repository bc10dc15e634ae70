"""One engine reads the prompt, and another one answers."""

from __future__ import annotations

import msgspec

from enginehouse import Role
from enginehouse.rescheduling import ReschedulingSettings
from tests.support.cluster_views import instance, view
from tests.support.model_engine import Break, ModelEngine, StartModelEngine
from tests.support.scripted_engine import Cut
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream

PATH = "/v1/completions"
BODY: dict[str, object] = {"model": MODEL, "prompt": "Tell", "max_tokens": 40}
KEPT = b'{"kv_transfer_params": {"remote_request_id": "r"}}'


async def opened(house: OpenGateway, *engines: ModelEngine, **routing: object) -> ServedGateway:
    """The first engine reads prompts, which it keeps for others; the others answer."""
    engines[0].scripts = [(engines[0].answer(KEPT),)] * 9
    gateway = await house(*engines, backend={"driver": "vllm"}, routing={"strategy": "llumnix_load", **routing})
    roles = [Role.PREFILL] + [Role.DECODE] * (len(engines) - 1)
    instances = (instance(name, role=role) for name, role in zip("abc", roles, strict=False))
    gateway.relay.context.router.strategies.on_view(view(*instances), ReschedulingSettings())
    return gateway


async def test_the_second_engine_gets_what_the_first_one_keeps(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, answers = await model_engine(), await model_engine()
    gateway = await opened(house, reads, answers)
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert reply.header("x-enginehouse-backend") == "b"
    assert reads.asked()["max_tokens"] == 1
    assert reads.asked()["kv_transfer_params"]["do_remote_decode"] is True
    assert answers.asked() == {**BODY, "kv_transfer_params": {"remote_request_id": "r"}}
    [decision] = gateway.relay.context.decisions.last(9)
    assert (decision["prefill"], decision["chosen"]) == ("m@a", "m@b")


async def test_an_engine_that_fails_to_answer_is_replaced_and_counted(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, broken, answers = await model_engine(), await model_engine(), await model_engine()
    gateway = await opened(house, reads, broken, answers)
    broken.scripts = [(broken.answer(b"{}", 503),)]
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "c")
    assert reply.header("x-enginehouse-reason") == "retry"
    assert gateway.relay.context.counters.retries == {"b": 1}
    decisions = gateway.relay.context.decisions.last(9)
    assert [(each["chosen"], each["reason"]) for each in decisions] == [("m@c", "retry"), ("m@b", "match")]


async def test_an_answer_that_is_gathered_survives_its_engine(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    engines = [await model_engine(), await model_engine(), await model_engine()]
    gateway = await opened(house, *engines, gather=True)
    engines[1].breaks = [Break(5, Cut.RESET)]
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    whole = read_stream(b"".join(stream(PATH, msgspec.json.encode({**BODY, "stream": True}))))
    assert msgspec.json.decode(reply.body)["choices"][0]["text"] == whole.text
    assert engines[1].asked()["kv_transfer_params"] == {"remote_request_id": "r"}
    assert reply.header("content-type") == "application/json"


def last_error(gateway: ServedGateway, backend: str) -> str | None:
    return next(each.last_error for each in gateway.relay.context.fleet.backends() if each.name == backend)


async def test_an_engine_that_reads_too_slowly_is_at_fault(house: OpenGateway, model_engine: StartModelEngine) -> None:
    reads, answers = await model_engine(), await model_engine()
    gateway = await opened(house, reads, answers)
    upstream = gateway.relay.context.upstreams["a"]
    upstream.timeouts = msgspec.structs.replace(upstream.timeouts, first_byte=0.2)
    reads.scripts = [()]
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert "no answer from a in 0.2 s" in str(last_error(gateway, "a"))


async def test_memory_that_the_gateway_lacks_is_no_fault_of_the_engine(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, answers = await model_engine(), await model_engine()
    gateway = await opened(house, reads, answers)
    reads.scripts = [(reads.answer(b'{"kv_transfer_params": "%s"}' % (b"x" * 60_000)),)]
    gateway.relay.context.upstreams["a"].outside.engine_memory.most = 50_000
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert answers.asked() == BODY
    assert last_error(gateway, "a") is None
