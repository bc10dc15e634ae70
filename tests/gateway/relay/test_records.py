"""What an observer is told of a request that has ended."""

from __future__ import annotations

import asyncio

import msgspec

from enginehouse import RequestRecord
from enginehouse.domain.plugin_id import PluginId
from enginehouse.telemetry.plugin_times import SampledCall
from tests.support.fake_clock import StoppedClock
from tests.support.keys import bearer, key
from tests.support.launched_engine import Launch
from tests.support.model_engine import Break, StartModelEngine
from tests.support.noted_records import NotedRecords, attempts, times_in_order
from tests.support.scripted_engine import Cut, ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway
from tests.support.waiting import within
from tests.support.web_sockets import Dial, StartSocketEngine

ANSWER = (
    b'{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}'
)
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
COUNTED = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
VLLM = {"driver": "vllm"}
STREAM = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 20}


async def test_a_request_that_was_served(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    keys, aliases = {"keys": [key("team-a")]}, {"aliases": {"gpt": MODEL}}
    gateway = await house(served, backend=VLLM, auth=keys, routing=aliases)
    noted = NotedRecords(gateway)
    served.says(ANSWER)
    body = msgspec.json.encode({"model": "gpt", "user": "ann", "messages": []})
    await gateway.ask(gateway.post(body, bearer("team-a"), b"x-request-id: mine"))
    record = await noted.only()
    assert (record.id, record.method, record.path) == ("mine", "POST", "/v1/chat/completions")
    assert (record.caller, record.user, record.stream) == ("team-a", "ann", False)
    assert (record.asked, record.model, record.backend, record.driver) == ("gpt", MODEL, "a", "vllm")
    assert (record.status, record.outcome, record.code, record.message) == (200, "served", None, "")
    assert (record.tokens_in, record.tokens_cached, record.tokens_out) == (12, 8, 9)
    assert (record.bytes_in, record.bytes_out, record.events) == (len(body), len(ANSWER), 0)
    assert (record.moves, record.granted, record.trace_id) == (0, None, None)
    assert times_in_order(record)
    [attempt] = record.attempts
    assert (attempt.replica, attempt.model, attempt.reason, attempt.status) == (f"{MODEL}@a", MODEL, "alias", 200)
    assert (attempt.began, attempt.sent, attempt.ended) == (record.routed, record.sent, record.ended)
    assert (attempt.outcome, attempt.why, attempt.attempted) == ("served", "", ("gpt", MODEL))


async def test_an_error_of_the_engine_is_not_served(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    noted = NotedRecords(gateway)
    served.says(b"{}", 404)
    assert (await gateway.ask()).status == 404
    record = await noted.only()
    assert (record.status, record.outcome, record.code) == (404, "engine_error", None)


async def test_a_record_is_data(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    noted = NotedRecords(gateway)
    await gateway.ask()
    record = await noted.only()
    assert msgspec.json.decode(msgspec.json.encode(record), type=RequestRecord) == record


async def test_a_stream_that_was_served(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(served := await engine())
    noted = NotedRecords(gateway)
    served.streams(EVENT, EVENT, COUNTED, DONE, b"")
    await gateway.ask(gateway.post(None, stream=True, user=7))
    record = await noted.only()
    assert (record.stream, record.events, record.user) == (True, 2, None)
    assert (record.tokens_in, record.tokens_cached, record.tokens_out) == (3, None, 2)
    assert record.bytes_out == len(EVENT + EVENT + COUNTED + DONE)
    assert times_in_order(record)


async def test_tokens_that_no_engine_counted_are_unknown(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(served := await engine())
    noted = NotedRecords(gateway)
    served.streams(EVENT, DONE, b"")
    await gateway.ask(gateway.post(None, stream=True))
    record = await noted.only()
    assert (record.tokens_in, record.tokens_cached, record.tokens_out, record.events) == (None, None, None, 1)


async def test_each_attempt_says_why_it_ended(house: OpenGateway, engine: StartEngine) -> None:
    busy, served = await engine(), await engine()
    gateway = await house(busy, await engine(there=False), served)
    noted = NotedRecords(gateway)
    busy.says(b"{}", 503)
    await gateway.ask()
    record = await noted.only()
    assert (record.status, record.outcome, record.backend, record.code) == (200, "served", "c", None)
    assert attempts(record) == [("a", "answered"), ("b", "upstream_error"), ("c", "served")]
    assert ["could not be reached" in each.why for each in record.attempts] == [False, True, False]
    assert [each.status for each in record.attempts] == [503, 0, 200]
    first, _, last = record.attempts
    assert (record.routed, record.sent, record.first_byte) == (first.began, first.sent, last.first_byte)
    assert times_in_order(record)


async def test_a_request_that_failed(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(broken := await engine(), routing={"max_retries": 0})
    noted = NotedRecords(gateway)
    broken.plays(ScriptedEngine.CLOSE)
    await gateway.ask()
    record = await noted.only()
    assert (record.status, record.outcome, record.code) == (502, "upstream_error", "upstream_error")
    assert record.message == record.attempts[0].why != ""
    assert (record.model, record.backend, record.first_byte) == (MODEL, "a", None)


async def test_a_request_that_nobody_serves(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    noted = NotedRecords(gateway)
    await gateway.ask(gateway.post({"model": "other"}))
    record = await noted.only()
    assert (record.status, record.code, record.attempts) == (404, "model_not_found", ())
    assert (record.asked, record.model, record.backend, record.driver) == ("other", None, None, None)
    assert (record.routed, record.sent, record.first_byte) == (None, None, None)
    assert "other" in record.message
    assert record.bytes_in > 0


async def test_a_request_that_was_refused_by_its_head(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("a")]}, server={"max_body": 9})
    noted = NotedRecords(gateway)
    await gateway.ask()
    await gateway.ask(gateway.post(None, bearer("a")))
    await gateway.until(lambda: len(noted.records) == 2)
    assert [(each.status, each.code) for each in noted.records] == [(401, "unauthorized"), (413, "invalid_request")]
    assert {(each.caller, each.asked, each.bytes_in, each.attempts) for each in noted.records} == {(None, None, 0, ())}


async def test_a_request_that_cannot_be_read(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("a")]})
    noted = NotedRecords(gateway)
    await gateway.ask(gateway.post(b"{", bearer("a")))
    record = await noted.only()
    assert (record.caller, record.status, record.code, record.asked) == ("a", 400, "invalid_request", None)


async def test_a_request_over_the_limits_of_its_key_names_it_and_frees_nothing(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    auth = {"keys": [key("a", max_concurrent=1)]}
    gateway = await house(served, auth=auth, clock=StoppedClock(1000.0))
    noted, ask = NotedRecords(gateway), gateway.post(None, bearer("a"))
    served.plays(gate := asyncio.Event(), served.answer(b"{}"))
    client = await gateway.client()
    client.send(ask)
    await served.call()
    assert [(await gateway.ask(ask)).status for _ in range(2)] == [429, 429]
    gate.set()
    assert (await client.reply()).status == 200
    assert (await gateway.ask(ask)).status == 200
    await gateway.until(lambda: len(noted.records) == 4)
    assert [each.caller for each in noted.records] == ["a"] * 4


async def test_a_client_that_left(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(slow := await engine())
    noted = NotedRecords(gateway)
    slow.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    await slow.call()
    client.close()
    record = await noted.only()
    assert (record.status, record.outcome, record.code, record.first_byte) == (499, "client_left", None, None)


async def test_a_request_that_an_operator_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(slow := await engine())
    noted = NotedRecords(gateway)
    slow.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    await slow.call()
    for live in list(gateway.relay.live):
        live.cancel()
    record = await noted.only()
    assert (record.status, record.code, attempts(record)) == (499, "cancelled", [("a", "cancelled")])


async def test_a_request_that_waited_for_its_engine(house: OpenGateway, engine: StartEngine, launched: Launch) -> None:
    gateway = await house(await engine())
    noted, cold = NotedRecords(gateway), launched(gateway, "a")
    client = await gateway.client()
    client.send(gateway.post())
    await cold.gets_ready()
    await client.reply()
    record = await noted.only()
    assert record.granted is not None
    assert record.attempts[0].queued
    assert times_in_order(record)


async def test_a_hedged_stream_names_the_winner_last(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, second = await model_engine(), await model_engine()
    rules = {"hedge_after": "5ms", "strategy": "priority_only"}
    backends = {"b": {"url": second.url, "models": [MODEL], "driver": "vllm", "priority": 9}}
    gateway = await house(first, backend=VLLM, backends=backends, routing=rules)
    noted = NotedRecords(gateway)
    first.gate = (0, asyncio.Event())
    await gateway.ask(gateway.post(STREAM))
    record = await noted.only()
    assert attempts(record) == [("a", "overtaken"), ("b", "served")]
    assert (record.backend, record.sent) == ("b", record.attempts[0].sent)
    assert times_in_order(record)


async def test_a_continued_stream_began_with_its_first_engine(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    noted = NotedRecords(gateway)
    first.breaks = [Break(9, Cut.CLOSE)]
    await gateway.ask(gateway.post(STREAM))
    record = await noted.only()
    assert attempts(record) == [("a", "upstream_error"), ("b", "served")]
    assert record.first_byte == record.attempts[0].first_byte
    assert (record.status, record.moves, record.code) == (200, 0, None)


async def test_a_moved_stream_counts_its_moves(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    noted = NotedRecords(gateway)
    source.gate = (6, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(STREAM, b"x-request-id: r1"))
    await client.head()
    await gateway.until(lambda: any(live.why_not_movable is None for live in gateway.relay.live))
    await gateway.relay.move("r1", "b")
    record = await noted.only()
    assert (attempts(record), record.moves) == ([("a", "moved"), ("b", "served")], 1)


async def test_a_gathered_answer_is_no_stream(house: OpenGateway, model_engine: StartModelEngine) -> None:
    gateway = await house(await model_engine(), await model_engine(), backend=VLLM, routing={"gather": True})
    noted = NotedRecords(gateway)
    await gateway.ask(gateway.post(STREAM | {"stream": False}))
    record = await noted.only()
    assert (record.stream, record.status, record.tokens_out) == (False, 200, 20)


async def test_a_web_socket(house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial) -> None:
    gateway = await house(await socket_engine(), auth={"keys": [key("a")]})
    noted = NotedRecords(gateway)
    socket = await dial(gateway, additional_headers={"x-api-key": "a-secret"})
    await socket.send("hello")
    await within(socket.recv())
    await socket.close()
    record = await noted.only()
    assert (record.method, record.status, record.outcome, record.caller) == ("GET", 101, "served", "a")
    assert (attempts(record), record.asked, record.backend) == ([("a", "served")], MODEL, "a")
    assert times_in_order(record)


async def test_a_web_socket_that_was_ended(house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial) -> None:
    gateway = await house(await socket_engine())
    noted = NotedRecords(gateway)
    await dial(gateway)
    gateway.relay.refuse_new()
    record = await noted.only()
    assert (record.status, record.code) == (503, "shutting_down")
    assert record.message == record.attempts[0].why != ""


async def test_observers_get_a_record_once_the_answer_is_on_its_way(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    told = NotedRecords(gateway)
    at_once: list[int] = []
    seen = SampledCall(PluginId("observer", "at_once"), lambda _: at_once.append(len(told.records)))
    gateway.relay.requests.at_end = [seen]
    await gateway.ask()
    await told.only()
    assert at_once == [0]
