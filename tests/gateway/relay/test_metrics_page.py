"""``GET /metrics`` of a gateway that has served nothing yet, or little."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_open
from prometheus_client.parser import text_string_to_metric_families as parsed

from enginehouse.domain.errors import all_codes
from enginehouse.domain.replica import ReplicaState
from enginehouse.processes.workers.channel import Channel
from enginehouse.processes.workers.worker_request import WorkerRequest
from enginehouse.relay.live.live_state import LiveState
from enginehouse_metrics import engines
from tests.support.launched_engine import Launch
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = b"traceparent: 00-%s-b7ad6b7169203331-01" % TRACE.encode()


def opened(text: bytes) -> Iterator[Metric]:
    families: Iterator[Metric] = parsed_open(text.decode())  # type: ignore[no-untyped-call]
    return families


async def page(gateway: ServedGateway) -> dict[str, Metric]:
    text = (await gateway.ask(gateway.get("/metrics"))).body.decode()
    return {family.name: family for family in parsed(text)}


def values(family: Metric, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of a family by these labels."""
    return {tuple(sample.labels[name] for name in labels): sample.value for sample in family.samples}


async def test_counters_are_there_before_they_count(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), await engine(), routing={"hedge_after": "1s"})
    found = await page(gateway)
    refused = values(found["enginehouse_refused"], "code", "model")
    assert {code for code, _ in refused} == {*all_codes()}
    assert ("no_healthy_backend", "m") in refused
    requests = values(found["enginehouse_requests"], "backend", "model", "status", "reason")
    assert {("a", "m", "200", "match"), ("b", "m", "502", "retry"), ("b", "m", "200", "hedge")} <= requests.keys()
    retries = values(found["enginehouse_retries"], "backend")
    assert retries == {("a",): 0, ("b",): 0}
    hedges = values(found["enginehouse_hedges"], "backend", "outcome")
    assert hedges.keys() == {(backend, outcome) for backend in "ab" for outcome in ("won", "lost", "failed")}
    drops = values(found["enginehouse_filter_drops"], "filter")
    assert ("health",) in drops
    counted = {**refused, **requests, **retries, **hedges, **drops}
    assert set(counted.values()) == {0}


async def test_refusals_have_their_model_if_it_is_known(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), routing={"aliases": {"any-*": "unknown"}})
    for _ in range(3):
        gateway.fleet.failed("a", "gone")
    await gateway.ask()
    for number in range(5):
        await gateway.ask(gateway.post({"model": f"made-up-{number}"}))
        await gateway.ask(gateway.post({"model": f"any-{number}"}))
    refused = values((await page(gateway))["enginehouse_refused"], "code", "model")
    assert {labels: count for labels, count in refused.items() if count} == {
        ("no_healthy_backend", "m"): 1,
        ("model_not_found", ""): 10,
    }


async def test_swaps_and_queues_begin_at_zero(house: OpenGateway, engine: StartEngine, launched: Launch) -> None:
    gateway = await house(await engine())
    launched(gateway, "a")
    found = await page(gateway)
    assert values(found["enginehouse_queue_depth"], "replica") == {("m@a",): 0}
    assert values(found["enginehouse_evictions"], "replica") == {("m@a",): 0}
    counts = [sample for sample in found["enginehouse_swap_duration_seconds"].samples if sample.name.endswith("_count")]
    assert {(each.labels["target"], each.labels["outcome"]) for each in counts} == {("m@a", "ready"), ("m@a", "failed")}


async def test_a_replica_is_in_one_state_and_in_no_other(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    states = values((await page(gateway))["enginehouse_replica_state"], "replica", "state")
    assert states == {("m@a", state.value): float(state is ReplicaState.READY) for state in ReplicaState}


async def test_the_depth_of_a_limited_backends_queue_has_the_label_of_its_replica(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(served := await engine())
    gateway.gateway.engines.remote.report("a", 1)
    served.plays(asyncio.Event())
    clients = [await gateway.client() for _ in range(3)]
    for client in clients:
        client.send(gateway.post())
    await until(lambda: sum(live.ticket is not None for live in gateway.relay.live) == 3)
    found = await page(gateway)
    assert values(found["enginehouse_queue_depth"], "replica") == {("m@a",): 2}
    assert ("m@a", "ready") in values(found["enginehouse_replica_state"], "replica", "state")


async def test_the_depth_counts_the_requests_that_wait_in_the_rooms_of_workers(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine())
    state = LiveState(id=b"r", path="/v1/completions", model="m", position=0)
    gateway.relay.live[WorkerRequest(state, Channel(lambda: None))] = 0
    found = await page(gateway)
    gateway.relay.live.clear()
    assert values(found["enginehouse_queue_depth"], "replica") == {("m",): 1}


async def test_open_metrics_have_the_traces_of_requests_and_the_time_since_which_they_count(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine(), telemetry={"traces": "otlp", "sample_ratio": 0.0})
    await gateway.ask(gateway.post(None, SAMPLED))
    accepts = b"accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    reply = await gateway.ask(gateway.get("/metrics", accepts))
    assert (reply.header("content-type") or "").startswith("application/openmetrics-text")
    found = {family.name: family for family in opened(reply.body)}
    exemplars = [sample.exemplar for sample in found["enginehouse_request_duration_seconds"].samples if sample.exemplar]
    assert [exemplar.labels for exemplar in exemplars] == [{"trace_id": TRACE}]
    for name in ("enginehouse_requests", "enginehouse_request_duration_seconds"):
        assert [sample.value > 1e9 for sample in found[name].samples if sample.name.endswith("_created")]


async def test_a_page_is_compressed_for_who_accepts_it(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.get("/metrics", b"accept-encoding: gzip"))
    assert reply.header("content-encoding") == "gzip"
    assert b"enginehouse_requests_total" in gzip.decompress(reply.body)


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        ("application/openmetrics-text;q=0.1,text/plain", False),
        ("application/openmetrics-text;q=0,*/*", False),
        ("application/openmetrics-text; q=maybe", False),
        ("Application/OpenMetrics-Text", True),
        ("*/*", False),
    ],
)
async def test_the_format_is_the_one_that_is_wanted_most(
    house: OpenGateway, engine: StartEngine, accept: str, is_open: bool
) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.get("/metrics", f"accept: {accept}".encode(), b"accept-encoding: gzip;q=0"))
    assert (reply.header("content-type") or "").startswith("application/openmetrics-text") == is_open
    assert reply.header("content-encoding") is None


async def test_the_pages_of_engines_are_asked_for_once(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_SHORTEST_S", 60.0)
    served = await engine()
    gateway = await house(served)
    served.otherwise((served.answer(b"# TYPE n gauge\nn 1\n"),))
    asked = gateway.get("/metrics/engines")
    replies = await asyncio.gather(*(gateway.ask(asked) for _ in range(20)))
    assert {reply.body for reply in replies} == {b'# TYPE n gauge\nn{backend="a"} 1\n'}
    await gateway.ask(asked)
    assert len(served.calls) == 1
    monkeypatch.setattr(engines, "_SHORTEST_S", 0.0)
    monkeypatch.setattr(engines, "_REST", 0.0)
    other = await house(served)
    for _ in range(2):
        await other.ask(asked)
    assert len(served.calls) == 3


async def test_large_pages_of_engines_are_left_out(house: OpenGateway, engine: StartEngine) -> None:
    huge, small = await engine(), await engine()
    gateway = await house(huge, small)
    line = b'n{x="%s"} 1\n' % (b"x" * 1000)
    huge.otherwise((huge.answer(line * 3000),))
    small.otherwise((small.answer(b"n 1\n"),))
    assert (await gateway.ask(gateway.get("/metrics/engines"))).body == b'n{backend="b"} 1\n'


async def test_the_pages_of_many_engines_have_a_bound(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_LARGEST", 4 << 20)
    served = await engine()
    gateway = await house(*[served] * 8)
    line = b'n{x="%s"} 1\n' % (b"x" * 1000)
    served.otherwise((served.answer(line * 1000),))
    body = (await gateway.ask(gateway.get("/metrics/engines"))).body
    assert 3 << 20 < len(body) < 5 << 20
