from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


async def test_an_answer_comes_back_byte_for_byte(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    body = '{ "odd"  :[1,\n2] , "ünï": "\\u00e9 💡"}'.encode()
    served.says(body, 200, b"X-Odd:  spaced ", b"x-twice: 1", b"x-twice: 2")
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.whole) == (200, body, True)
    assert reply.header("content-type") == "application/json"
    assert reply.value("x-odd").strip() == "spaced"
    assert [value for name, value in reply.lines if name.lower() == b"x-twice"] == [b"1", b"2"]
    assert reply.header("content-length") == str(len(body))


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/rerank", "/v1/messages"],
)
async def test_every_endpoint_is_relayed_to_the_same_path(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served)
    assert (await gateway.ask(gateway.post(path=path))).status == 200
    assert served.calls[0].request_line == b"POST %s HTTP/1.1" % path.encode()


async def test_the_body_reaches_the_engine_byte_for_byte(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    body = '\t{ "unknown" :[ 1e400,  -0.0 ],\r\n"model":"m" ,"ünï": "\\u00e9💡", "x": null }\n'.encode()
    await gateway.ask(gateway.post(body))
    assert served.calls[0].body == body
    assert served.calls[0].header(b"content-length") == [b"%d" % len(body)]


async def test_a_body_sent_in_chunks_and_segments_reaches_the_engine_in_one_piece(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
    for piece in (head, b'5\r\n{"mod', b'\r\n7;ext=1\r\nel": "m\r\n', b'2\r\n"}\r\n0\r\n', b"\r\n"):
        client.send(piece)
        await client.drained()
        await asyncio.sleep(0)
    assert (await client.reply()).status == 200
    assert served.calls[0].body == b'{"model": "m"}'
    assert served.calls[0].header(b"transfer-encoding") == []


async def test_only_the_model_value_is_replaced_for_an_alias(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, routing={"aliases": {"gpt-4": "m"}})
    reply = await gateway.ask(gateway.post(b'{"a":"gpt-4",\n "model" : "gpt-4", "messages":[] }'))
    assert served.calls[0].body == b'{"a":"gpt-4",\n "model" : "m", "messages":[] }'
    assert (reply.header("x-enginehouse-reason"), reply.header("x-enginehouse-model")) == ("alias", "m")


async def test_a_body_whose_alias_cannot_be_replaced_is_the_clients_mistake(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, routing={"aliases": {"gpt-4": "m"}})
    body = b'{"model": "gpt-4", "model": "gpt-4", "\xff": 1}'
    for _ in range(2):  # over a new connection, and over one that is kept
        reply = await gateway.ask(gateway.post(body))
        assert (reply.status, reply.code) == (400, "invalid_request")
        await gateway.ask()
    assert [call.body for call in served.calls] == [b'{"model":"m"}'] * 2


async def test_the_answer_names_its_backend(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    reply = await gateway.ask(gateway.post(None, b"X-Request-Id: my own id"))
    assert reply.header("x-request-id") == "my own id"
    assert served.calls[0].header(b"x-request-id") == [b"my own id"]
    assert reply.header("x-enginehouse-backend") == "a"
    assert reply.header("x-enginehouse-model") == "m"
    assert reply.header("x-enginehouse-reason") == "match"
    assert 0 < int(reply.value("x-enginehouse-overhead-us")) < 1_000_000


@pytest.mark.parametrize("given", [b"", b"x-request-id: ", b"x-request-id: " + b"a" * 129, b"x-request-id: \xe9"])
async def test_a_request_without_a_usable_id_gets_one(house: OpenGateway, engine: StartEngine, given: bytes) -> None:
    served = await engine()
    gateway = await house(served)
    lines = (given,) if given else ()
    first, second = [await gateway.ask(gateway.post(None, *lines)) for _ in range(2)]
    ids = [first.value("x-request-id"), second.value("x-request-id")]
    assert ids[0].startswith("req-")
    assert ids[0] != ids[1]
    assert [call.header(b"x-request-id") for call in served.calls] == [[name.encode()] for name in ids]


async def test_errors_carry_the_request_id(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.post(b"{", b"x-request-id: mine"))
    assert (reply.status, reply.header("x-request-id")) == (400, "mine")


async def test_what_is_for_the_gateway_does_not_reach_the_engine(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    mine = {
        b"authorization": b"Bearer mine", b"x-api-key": b"mine", b"api-key": b"mine", b"cookie": b"mine=1",
        b"proxy-authorization": b"mine", b"te": b"trailers", b"trailer": b"x", b"keep-alive": b"max=1",
        b"proxy-connection": b"x", b"accept-encoding": b"gzip", b"expect": b"nothing",
        b"x-goog-api-key": b"mine", b"x-auth-token": b"mine", b"x-access-token": b"mine", b"x-authorization": b"mine",
        b"x-first": b"1", b"x-second": b"2", b"x-third": b"3",
    }  # fmt: skip
    lines = [b"%s: %s" % line for line in mine.items()]
    named = [b"Connection: X-First, keep-alive", b"Connection: x-second,X-THIRD"]
    reply = await gateway.ask(gateway.post(None, *named, *lines, b"x-mine: stays", b"traceparent: 00-1-2-01"))
    assert reply.status == 200
    names = [name.lower() for name, _ in served.calls[0].lines]
    assert sorted(names) == [b"content-length", b"host", b"traceparent", b"x-mine", b"x-request-id"]
    assert served.calls[0].header(b"host") == [served.url.removeprefix("http://").encode()]


async def test_the_engine_gets_its_own_key(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, backend={"api_key": "secret", "pass_authorization": True})
    await gateway.ask(gateway.post(None, b"authorization: Bearer mine"))
    assert served.calls[0].header(b"authorization") == [b"Bearer secret"]


async def test_the_clients_key_is_passed_on_where_that_is_wanted(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, backend={"pass_authorization": True})
    await gateway.ask(gateway.post(None, b"authorization: Bearer mine", b"cookie: a"))
    assert served.calls[0].header(b"authorization") == [b"Bearer mine"]
    assert served.calls[0].header(b"cookie") == []


async def test_what_is_between_engine_and_gateway_does_not_reach_the_client(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    named = [b"Connection: x-first", b"Connection: X-Second, keep-alive", b"X-FIRST: 1", b"x-second: 2"]
    ours = [b"X-Request-Id: theirs"] + [
        b"X-Enginehouse-%s: theirs" % name for name in (b"Backend", b"Model", b"Reason", b"Overhead-Us")
    ]
    hops = [b"Keep-Alive: timeout=5", b"Proxy-Authenticate: Basic", b"Trailer: x", b"Upgrade: h2c", b"TE: x"]
    served.says(b"{}", 200, *named, *ours, *hops, b"x-theirs: stays")
    reply = await gateway.ask()
    names = {name.lower() for name, _ in reply.lines}
    assert names.isdisjoint(
        {b"x-first", b"x-second", b"keep-alive", b"proxy-authenticate", b"trailer", b"upgrade", b"te"}
    )
    assert reply.header("x-theirs") == "stays"
    assert b"theirs" not in [value for _, value in reply.lines]
    assert reply.header("x-enginehouse-backend") == "a"


async def test_a_models_name_cannot_break_out_of_its_header(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), backend={"models": ["m", "ä\r\nx: y"]})
    reply = await gateway.ask(gateway.post({"model": "ä\r\nx: y"}))
    assert reply.header("x-enginehouse-model") == "%C3%A4%0D%0Ax: y"


async def test_a_chunked_answer_is_relayed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    served.plays(head, b"4\r\nab", b"cd\r\n1;x=y\r\ne\r\n", b"0\r\nx-trailer: 1\r\n\r\n")
    reply = await gateway.ask()
    assert (reply.body, reply.whole) == (b"abcde", True)
    assert reply.header("x-trailer") is None


async def test_trailers_do_not_become_headers(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nset-cookie: a\r\n\r\n")
    reply = await gateway.ask()
    assert (reply.body, reply.header("set-cookie")) == (b"1", None)


async def test_a_clients_trailers_do_not_become_headers(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    chunked = gateway.post(b"", b"transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    reply = await gateway.ask(chunked + b'd\r\n{"model":"m"}\r\n0\r\nx-trailer: 1\r\nx-request-id: late\r\n\r\n')
    assert reply.status == 200
    assert served.calls[0].header(b"x-trailer") == []
    assert served.calls[0].header(b"x-request-id") != [b"late"]


async def test_an_answer_that_ends_with_its_connection_is_relayed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.0 200 OK\r\n\r\nab", b"cde", served.CLOSE)
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.whole) == (200, b"abcde", True)


async def test_an_answer_without_a_body_is_relayed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    served.plays(b"HTTP/1.1 204 No Content\r\nx-a: b\r\n\r\n")
    reply = await client.ask(gateway.post(path="/v1/audio/speech"))
    assert (reply.status, reply.header("x-a")) == (204, "b")
    assert reply.header("content-length") is None
    assert reply.header("transfer-encoding") is None
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n")
    reply = await client.ask(gateway.post(path="/v1/audio/speech"))
    assert (reply.status, reply.body, reply.header("content-length")) == (200, b"", "0")
    assert len(served.connections) == 1


async def test_informational_answers_are_not_the_answer(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    early = b"HTTP/1.1 103 Early\r\ncontent-type: text/event-stream\r\nconnection: x-mine\r\nx-early: 1\r\n\r\n"
    served.plays(b"HTTP/1.1 100 Continue\r\n\r\n" + early, served.answer(b"{}", 200, b"x-mine: 1"))
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.header("content-length")) == (200, b"{}", "2")
    assert (reply.header("x-early"), reply.header("x-mine")) == (None, "1")


async def test_an_answer_in_single_bytes_is_relayed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    answer = served.answer(b'{"a": 1}', 201, b"x-a: b")
    served.plays(*(answer[i : i + 1] for i in range(len(answer))))
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.header("x-a")) == (201, b'{"a": 1}', "b")


async def test_an_answer_is_passed_on_while_it_comes(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    more = asyncio.Event()
    served.plays(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", more, b"2\r\ncd\r\n0\r\n\r\n")
    client = await gateway.client()
    client.send(gateway.post())
    await client.head()
    assert await client.chunk() == b"ab"
    more.set()
    assert [await client.chunk(), await client.chunk()] == [b"cd", b""]


@pytest.mark.parametrize("status", [400, 405, 413, 422])
async def test_an_engines_own_4xx_passes_untouched(house: OpenGateway, engine: StartEngine, status: int) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other)
    served.says(b'{"error": "theirs"}', status, b"retry-after: 7")
    reply = await gateway.ask()
    assert (reply.status, reply.body) == (status, b'{"error": "theirs"}')
    assert (reply.header("x-enginehouse-backend"), reply.header("retry-after")) == ("a", "7")
    assert other.calls == []


async def test_a_connection_to_an_engine_is_used_again(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    for _ in range(3):
        assert (await gateway.ask()).status == 200
    assert len(served.connections) == 1


@pytest.mark.parametrize("closing", [b"HTTP/1.1 200 OK\r\nconnection: close\r\n", b"HTTP/1.0 200 OK\r\n"])
async def test_a_connection_that_the_engine_will_close_is_not_used_again(
    house: OpenGateway, engine: StartEngine, closing: bytes
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(closing + b"content-length: 2\r\n\r\n{}")
    assert (await gateway.ask()).body == b"{}"
    assert (await gateway.ask()).status == 200
    assert len(served.connections) == 2


async def test_figures_and_decisions_tell_of_requests(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    reply = await gateway.ask()
    [decision] = msgspec.json.decode((await gateway.ask(gateway.get("/api/decisions"))).body)["decisions"]
    assert decision["request_id"] == reply.header("x-request-id")
    assert (decision["chosen"], decision["reason"]) == ("m@a", "match")
    metrics = (await gateway.ask(gateway.get("/metrics"))).body.decode()
    assert 'enginehouse_requests_total{backend="a",key="",model="m",reason="match",status="200"} 1.0' in metrics
    assert 'enginehouse_backend_pending{backend="a"} 0.0' in metrics
