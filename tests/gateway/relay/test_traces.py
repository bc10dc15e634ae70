"""What becomes of a traced request: its record, and the spans made from it. The collector is in tests/system."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from enginehouse.domain.errors import LoadFailed
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.telemetry.trace_context import MOST_CAPTURED, read_traceparent
from enginehouse_otlp.framing import frame, read_frame
from enginehouse_otlp.messages import RequestBatch
from enginehouse_otlp.process.spans import Span, spans
from tests.support.keys import bearer, key
from tests.support.launched_engine import Launch
from tests.support.model_engine import StartModelEngine
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = b"traceparent: 00-%s-b7ad6b7169203331-01" % TRACE.encode()
UNSAMPLED = SAMPLED[:-2] + b"00"
EVENT = b'data: {"choices":[{"delta":{"content":"planted answer"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 30}
PROMPT = {"model": "m", "messages": [{"role": "user", "content": "planted prompt"}]}


def as_exported(requests: list[TracedRequest]) -> list[TracedRequest]:
    """The requests as the exporter reads them from its pipe."""
    batch = read_frame(io.BytesIO(frame(RequestBatch(0, requests))))
    assert isinstance(batch, RequestBatch)
    return batch.requests


class Records:
    """The records of a gateway's traced requests."""

    def __init__(self, gateway: ServedGateway) -> None:
        self.taken: list[TracedRequest] = []
        assert gateway.relay.context.tracer is not None
        gateway.relay.context.tracer.add = self.taken.append

    async def spans(self) -> list[Span]:
        """The spans of the only request, as the exporter makes them."""
        await until(lambda: self.taken)
        (record,) = as_exported(self.taken)
        return list(spans(record, 0))

    async def names(self) -> list[str]:
        """Of all spans but that of a queue, which takes a while on a busy machine even if it has room."""
        return [span.name for span in await self.spans() if span.name != "schedule"]

    async def by_name(self) -> dict[str, Span]:
        return {span.name: span for span in await self.spans()}


def telemetry(**more: object) -> dict[str, object]:
    return {"traces": "otlp", "sample_ratio": 0.0, **more}


def attribute(span: Span, name: str) -> object:
    return span.attributes.get(name)


async def test_an_unsampled_request_goes_on_as_it_came(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(served := await engine(), telemetry=telemetry())
    records = Records(gateway)
    await gateway.ask(gateway.post(None, UNSAMPLED, b"tracestate: a=b", b"baggage: k=v"))
    (call,) = served.calls
    assert call.header(b"traceparent") == [UNSAMPLED.partition(b": ")[2]]
    assert (call.header(b"tracestate"), call.header(b"baggage")) == ([b"a=b"], [b"k=v"])
    await gateway.quiet()
    assert records.taken == []


@pytest.mark.parametrize("client", [[], [b"traceparent: nonsense", b"tracestate: a=b"], [SAMPLED, SAMPLED]])
async def test_an_engine_learns_that_a_request_is_not_sampled(
    house: OpenGateway, engine: StartEngine, client: list[bytes]
) -> None:
    gateway = await house(served := await engine(), telemetry=telemetry(sample_ratio=0.0))
    for _ in range(3):  # the third head is known
        await gateway.ask(gateway.post(None, *client))
    told = [call.header(b"traceparent") for call in served.calls]
    parents = [read_traceparent(value) for (value,) in told]
    assert [parent is not None and parent.sampled for parent in parents] == [False] * 3
    assert len({parent.trace_id for parent in parents if parent is not None}) == 3
    assert served.calls[0].header(b"tracestate") == []


async def test_a_sampled_request_tells_its_engine_of_the_upstream_span(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(served := await engine(), telemetry=telemetry())
    records = Records(gateway)
    await gateway.ask(gateway.post(None, SAMPLED, b"tracestate: a=b", b"baggage: k=v"))
    spans = await records.by_name()
    upstream = spans["upstream"]
    assert served.calls[0].header(b"traceparent") == [b"00-%s-%016x-01" % (TRACE.encode(), upstream.id.span)]
    assert served.calls[0].header(b"tracestate") == [b"a=b"]
    assert served.calls[0].header(b"baggage") == [b"k=v"]
    assert upstream.state == "a=b"


async def test_each_attempt_has_a_span_of_its_own_that_its_engine_knows(
    house: OpenGateway, engine: StartEngine
) -> None:
    busy, served = await engine(), await engine()
    gateway = await house(busy, served, telemetry=telemetry())
    records = Records(gateway)
    busy.says(b"{}", 503)
    await gateway.ask(gateway.post(None, SAMPLED))
    told = [each.calls[0].header(b"traceparent") for each in (busy, served)]
    spans = [span for span in await records.spans() if span.name == "upstream"]
    assert told == [[b"00-%s-%016x-01" % (TRACE.encode(), span.id.span)] for span in spans]
    assert [attribute(span, "enginehouse.outcome") for span in spans] == ["answered", "served"]


async def test_a_request_that_is_sent_again_continues_nothing(house: OpenGateway, engine: StartEngine) -> None:
    busy, served = await engine(), await engine()
    gateway = await house(busy, served, telemetry=telemetry())
    records = Records(gateway)
    busy.says(b"{}", 503)
    await gateway.ask(gateway.post(None, SAMPLED))
    assert await records.names() == ["chat m", "route", "upstream", "route", "upstream"]


async def test_a_stream_whose_hedge_is_overtaken_continues_nothing(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, hedge = await model_engine(), await model_engine()
    routing = {"hedge_after": "5ms", "strategy": "round_robin"}
    gateway = await house(first, hedge, backend={"driver": "vllm"}, routing=routing, telemetry=telemetry())
    records = Records(gateway)
    first.gate, hedge.gate = (0, asyncio.Event()), (0, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(STREAM, SAMPLED))
    await hedge.call()
    first.gate[1].set()
    await client.reply()
    assert await records.names() == [f"chat {MODEL}", "route", "upstream", "route", "upstream"]
    root, *below = await records.spans()
    won, lost = [span for span in below if span.name == "upstream"]
    shown = ("enginehouse.outcome", "enginehouse.reason", "error.type")
    assert [attribute(won, name) for name in shown] == ["served", "match", None]
    assert [attribute(lost, name) for name in shown] == ["overtaken", "hedge", None]
    assert (won.error, lost.error) == (None, None)
    assert all(root.began <= span.began < span.ended <= root.ended for span in below)


async def test_a_moved_stream_tells_of_its_migration(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend={"driver": "vllm"}, telemetry=telemetry())
    records = Records(gateway)
    source.gate = (3, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(STREAM, SAMPLED, b"x-request-id: mine"))
    await client.head()
    await client.chunk()
    moved = await gateway.relay.move("mine", "b")
    while not (piece := await client.chunk()).endswith(DONE):
        assert piece
    spans = await records.spans()
    assert [span.name for span in spans] == [f"chat {MODEL}", "route", "upstream", "migrate", "upstream"]
    migrate, (first, second) = spans[3], [span for span in spans if span.name == "upstream"]
    assert migrate.began <= second.began < first.ended <= migrate.ended < second.ended
    gap, again = attribute(migrate, "enginehouse.gap_ms"), attribute(migrate, "enginehouse.tokens_read_again")
    assert isinstance(gap, float)
    assert 0 <= gap <= moved.gap_ms
    assert isinstance(again, int)
    assert again >= 3
    assert attribute(migrate, "enginehouse.cause") == "operator"
    assert [(event.name, event.at) for event in spans[0].events] == [("moved", migrate.ended)]
    assert [event.name for event in second.events] == ["first_chunk"]
    assert (first.error, attribute(first, "error.type")) == (None, None)


async def test_a_decision_tells_its_filters_and_its_score(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), await engine(), telemetry=telemetry())
    records = Records(gateway)
    for _ in range(3):
        gateway.fleet.failed("a", "gone")
    await gateway.ask(gateway.post(None, SAMPLED))
    route = (await records.by_name())["route"]
    assert attribute(route, "enginehouse.candidates") == 2
    assert attribute(route, "enginehouse.dropped.health") == 1
    assert attribute(route, "enginehouse.score") == 100
    assert attribute(route, "enginehouse.replica") == "m@b"


async def test_a_refused_request_tells_who_was_dropped_and_why(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), await engine(), telemetry=telemetry())
    records = Records(gateway)
    for backend in ("a", "a", "a", "b", "b", "b"):
        gateway.fleet.failed(backend, "gone")
    await gateway.ask(gateway.post(None, SAMPLED))
    root, route = await records.spans()
    assert (root.name, attribute(root, "error.type")) == ("chat m", "no_healthy_backend")
    assert route.parent == root.id
    assert root.began <= route.began < route.ended <= root.ended
    assert (attribute(route, "enginehouse.strategy"), attribute(route, "enginehouse.candidates")) == ("smart", 2)
    assert attribute(route, "enginehouse.dropped.health") == 2
    dropped = attribute(route, "enginehouse.dropped")
    assert isinstance(dropped, tuple)
    assert [each.split(": ")[:2] for each in dropped] == [["m@a", "health"], ["m@b", "health"]]


async def test_a_decision_tells_the_scores_of_the_losers(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(*[await engine() for _ in range(3)], telemetry=telemetry())
    records = Records(gateway)
    await gateway.ask(gateway.post(None, SAMPLED))
    losers = attribute((await records.by_name())["route"], "enginehouse.losers")
    assert losers == ("m@b 100", "m@c 100")


@pytest.mark.parametrize("status", [400, 500])
async def test_an_engines_error_is_one_of_its_call(house: OpenGateway, engine: StartEngine, status: int) -> None:
    gateway = await house(served := await engine(), telemetry=telemetry())
    records = Records(gateway)
    served.says(b"{}", status)
    await gateway.ask(gateway.post(None, SAMPLED))
    spans = await records.by_name()
    upstream, root = spans["upstream"], spans["chat m"]
    assert (upstream.error, attribute(upstream, "error.type")) == (f"answered {status}", str(status))
    expected = (None, None) if status < 500 else (f"answered {status}", str(status))
    assert (root.error, attribute(root, "error.type")) == expected


async def test_a_span_says_what_the_engine_answered(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(served := await engine(), telemetry=telemetry())
    records = Records(gateway)
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 1}}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, **details}
    choice = {"message": {"content": '{"model": "none"}'}, "finish_reason": "length"}
    served.says(json.dumps({"id": "cmpl-1", "model": "m-0613", "choices": [choice], "usage": usage}).encode())
    asked = {"max_tokens": 2, "temperature": 0, "top_p": 0.5, "seed": 7, "stop": "x", "top_k": "odd"}
    await gateway.ask(gateway.post({**PROMPT, **asked}, SAMPLED))
    spans = await records.by_name()
    expected = {
        "operation.name": "chat",
        "request.max_tokens": 2,
        "request.temperature": 0.0,
        "request.top_p": 0.5,
        "request.seed": 7,
        "request.top_k": None,
        "request.stop_sequences": ["x"],
        "response.model": "m-0613",
        "response.id": "cmpl-1",
        "response.finish_reasons": ["length"],
        "usage.input_tokens": 9,
        "usage.cache_read.input_tokens": 4,
        "usage.reasoning.output_tokens": 1,
    }
    for span in (spans["chat m"], spans["upstream"]):
        assert {name: attribute(span, f"gen_ai.{name}") for name in expected} == expected
    http = ("http.request.method", "url.full", "gen_ai.provider.name")
    called = ["POST", f"{served.url}/v1/chat/completions", "openai"]
    assert [attribute(spans["upstream"], name) for name in http] == called
    came = [attribute(spans["chat m"], name) for name in ("http.request.method", "http.route", "url.scheme")]
    assert came == ["POST", "/v1/chat/completions", "http"]


async def test_a_failed_request_is_kept_and_linked_to_its_client(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(broken := await engine(), telemetry=telemetry(), routing={"max_retries": 0})
    records = Records(gateway)
    broken.plays(ScriptedEngine.CLOSE)
    await gateway.ask(gateway.post(None, UNSAMPLED))
    root, *_ = await records.spans()
    assert root.parent is None
    assert root.link is not None
    assert f"{root.link.trace:032x}" == TRACE
    assert f"{root.id.trace:032x}" != TRACE
    assert attribute(root, "error.type") == "upstream_error"
    assert "'a' broke off" in (root.error or "")


async def test_a_slow_request_is_kept_and_linked_to_its_client(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), telemetry=telemetry(keep_slow=0.000_001))
    records = Records(gateway)
    await gateway.ask(gateway.post(None, UNSAMPLED))
    root, *below = await records.spans()
    assert root.link is not None
    assert f"{root.link.trace:032x}" == TRACE
    assert {span.name for span in below} == {"route", "upstream"}
    assert (attribute(root, "enginehouse.backend"), root.error) == ("a", None)


async def test_a_refused_request_has_a_trace_without_attempts(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), telemetry=telemetry())
    records = Records(gateway)
    await gateway.ask(gateway.post({"model": "nowhere"}, SAMPLED))
    root, route = await records.spans()
    assert (root.name, attribute(root, "enginehouse.code"), root.error) == ("chat", "model_not_found", None)
    assert attribute(route, "enginehouse.candidates") == 0


async def test_a_span_names_the_key(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), telemetry=telemetry(), auth={"keys": [key("alice")]})
    records = Records(gateway)
    assert (await gateway.ask(gateway.post(None, SAMPLED, bearer("alice")))).status == 200
    root, *_ = await records.spans()
    assert attribute(root, "enginehouse.key") == "alice"


async def test_a_request_that_its_client_leaves_says_so(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(slow := await engine(), telemetry=telemetry())
    records = Records(gateway)
    slow.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(None, SAMPLED))
    await slow.call()
    client.close()
    root, *below = await records.spans()
    assert [attribute(span, "error.type") for span in below] == [span.error for span in below] == [None, None]
    assert attribute(root, "enginehouse.outcome") == "client_left"


async def test_a_load_that_fails_is_a_schedule_without_an_upstream(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    gateway = await house(await engine(), telemetry=telemetry())
    records, cold = Records(gateway), launched(gateway, "a")
    client = await gateway.client()
    client.send(gateway.post(None, SAMPLED))
    await cold.does_not_start(LoadFailed("no"))
    await client.reply()
    spans = await records.by_name()
    assert "upstream" not in spans
    assert spans["schedule"].parent == spans["chat m"].id


@pytest.mark.parametrize("stream", [True, False])
async def test_prompts_and_answers_are_kept_only_if_asked_for(
    house: OpenGateway, engine: StartEngine, stream: bool
) -> None:
    for captures in (False, True):
        gateway = await house(served := await engine(), telemetry=telemetry(capture_content=captures))
        records = Records(gateway)
        if stream:
            served.streams(EVENT, EVENT, DONE, served.END)
        else:
            served.says(b'{"choices":[{"message":{"role":"assistant","content":"planted answer"}}]}')
        await gateway.ask(gateway.post(PROMPT, SAMPLED, stream=stream))
        root, *_ = await records.spans()
        shown = str(root.attributes)
        assert ("planted prompt" in shown) == captures
        assert ("planted answer" in shown) == captures


async def test_a_record_survives_the_pipe(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), telemetry=telemetry())
    records = Records(gateway)
    await gateway.ask(gateway.post(None, SAMPLED))
    await until(lambda: records.taken)
    (written,) = records.taken
    batch = RequestBatch(5, [written])
    pipe = io.BytesIO(frame(batch) + frame(batch)[:-1])
    assert read_frame(pipe) == batch
    assert read_frame(pipe) is None


async def test_a_long_prompt_and_odd_contents_are_left_out(house: OpenGateway, engine: StartEngine) -> None:
    odd = [{"role": "assistant", "tool_calls": [1]}]
    for messages in (odd, [{"role": "user", "content": "x" * MOST_CAPTURED}]):
        gateway = await house(await engine(), telemetry=telemetry(capture_content=True))
        records = Records(gateway)
        await gateway.ask(gateway.post({"model": "m", "messages": messages}, SAMPLED))
        root, *_ = await records.spans()
        assert attribute(root, "http.response.status_code") == 200
        assert attribute(root, "gen_ai.input.messages") is None


async def test_names_that_a_pattern_matches_are_no_names_of_spans(house: OpenGateway, engine: StartEngine) -> None:
    aliases = {"aliases": {"any-*": MODEL, "small": MODEL}}
    gateway = await house(await engine(), telemetry=telemetry(sample_ratio=1.0), routing=aliases)
    records = Records(gateway)
    for asked in ("any-1", "any-2", "small", MODEL):
        await gateway.ask(gateway.post({"model": asked}))
    await until(lambda: len(records.taken) == 4)
    assert [next(iter(spans(each, 0))).name for each in as_exported(records.taken)] == [
        *["chat m"] * 2,
        "chat small",
        "chat m",
    ]
