from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.support.keys import bearer, key
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import event

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "SEARCH"]
REPEATABLE, ONCE = ["GET", "PUT", "DELETE", "OPTIONS"], ["POST", "PATCH"]
GZIP = b"\x1f\x8b\x08\x00 not really\n\n but binary"


def request(method: str, target: str, body: bytes | None = None, *lines: bytes) -> bytes:
    sized = () if body is None else (b"content-length: %d" % len(body),)
    return b"\r\n".join((f"{method} {target} HTTP/1.1".encode(), b"host: localhost", *sized, *lines, b"", body or b""))


OUTSIDE = [
    "..", "../x", "../../x", "a/../x", "a/..", "%2e%2e/x", "%2E./x", ".%2e/x", "..%2fx", "a%2F..%2fx", "%2e%2e%2fx",
    "/x", "a//x", "..\\x", "..%5cx", "a%5Cx", "a\\x", "..;/x", "..;a=b/x", "..?x=1",
]  # fmt: skip
INSIDE = ["", "...", "..a/b", "a..b", "a%2Fb", "a?x=../y//z", "a/./b", "https%3A%2F%2Fb", "%252e%252e"]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_no_path_leaves_the_prefix_of_the_backend(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served, backend={"url": f"{served.url}/tenant"})
    reply = await gateway.ask(request("GET", f"/upstream/m/{path}"))
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert served.calls == []


@pytest.mark.parametrize("path", INSIDE)
async def test_other_paths_stay_as_they_are(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served, backend={"url": f"{served.url}/tenant"})
    assert (await gateway.ask(request("GET", f"/upstream/m/{path}"))).status == 200
    assert served.calls[0].request_line == f"GET /tenant/{path} HTTP/1.1".encode()


# --- what an engine gets


async def test_another_gateway_learns_who_calls(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    backend = {"api_key": "secret-of-front", "pass_caller": True}
    gateway = await house(served, backend=backend, auth={"keys": [key("ann", priority=3)]})
    assert (await gateway.ask(request("GET", "/upstream/m/props", None, bearer("ann")))).status == 200
    call = served.calls[0]
    assert [call.header(b"x-enginehouse-caller"), call.header(b"x-enginehouse-priority")] == [[b"ann"], [b"3"]]


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_reaches_the_engine_without_the_prefix(
    house: OpenGateway, engine: StartEngine, method: str
) -> None:
    served = await engine()
    gateway = await house(served)
    reply = await gateway.ask(
        request(method, "/upstream/m/slots/1?action=save&x=%20", b"{}" if method == "POST" else None)
    )
    assert (reply.status, reply.body) == (200, b'{"ok": true}')
    assert served.calls[0].request_line == f"{method} /slots/1?action=save&x=%20 HTTP/1.1".encode()
    assert [reply.header(f"x-enginehouse-{name}") for name in ("backend", "model", "reason")] == ["a", "m", "match"]
    assert reply.header("x-request-id")


@pytest.mark.parametrize(
    ("path", "target"),
    {
        "/": "/",
        "/a%2Fb%2fc": "/a%2Fb%2fc",
        "/%61%0a%00%FF/..a/": "/%61%0a%00%FF/..a/",
        "/x/./y": "/x/./y",
        "/a+b&c=d@e:f!$'()*,~|": "/a+b&c=d@e:f!$'()*,~|",
        "/?": "/",
        "/p?q=%2F&&r": "/p?q=%2F&&r",
        "?q": "?q",
    }.items(),
)
async def test_the_rest_of_the_path_stays_byte_for_byte(
    house: OpenGateway, engine: StartEngine, path: str, target: str
) -> None:
    served = await engine()
    gateway = await house(served)
    reply = await gateway.ask(request("GET", f"/upstream/m{path}"))
    if path == "?q":
        assert (reply.status, reply.header("location")) == (301, "/upstream/m/?q")
        return
    assert reply.status == 200
    assert served.calls[0].request_line == f"GET {target} HTTP/1.1".encode()


@pytest.mark.parametrize(
    ("path", "model", "target"),
    [
        ("author/model/x", "author/model", "/x"),
        ("author%2Fmodel/x", "author/model", "/x"),
        ("author/model%2Fx", "author", "/model%2Fx"),
        ("author/other/x", "author", "/other/x"),
        ("author/model-2/x", "author", "/model-2/x"),
        ("a/b/c/d", "a/b/c", "/d"),
        ("a/b/c%2Fd", "a/b", "/c%2Fd"),
        ("a/b/%2Fc", "a/b", "/%2Fc"),
        ("llama3:8b/x", "llama3:8b", "/x"),
        ("llama3%3A8b/x", "llama3:8b", "/x"),
        ("%6d/x", "m", "/x"),
        ("nick/name/x", "m", "/x"),
    ],
)
async def test_the_model_is_the_longest_known_name(
    house: OpenGateway, engine: StartEngine, path: str, model: str, target: str
) -> None:
    served = await engine()
    models = ["m", "author", "author/model", "a/b", "a/b/c", "llama3:8b"]
    gateway = await house(served, backend={"models": models}, routing={"aliases": {"nick/name": "m"}})
    reply = await gateway.ask(request("GET", f"/upstream/{path}"))
    assert (reply.status, reply.header("x-enginehouse-model")) == (200, model)
    assert served.calls[0].request_line == f"GET {target} HTTP/1.1".encode()


@pytest.mark.parametrize("path", ["nope", "nope/x", "m%2Fx", "M/x", "%FF/x", "b/a/x"])
async def test_an_unknown_model_is_not_found(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served, backend={"models": ["m", "a/b"]})
    reply = await gateway.ask(request("GET", f"/upstream/{path}"))
    assert (reply.status, reply.code) == (404, "model_not_found")
    assert served.calls == []


@pytest.mark.parametrize("path", ["", "/m/x"])
async def test_an_empty_name_is_no_model(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(request("GET", f"/upstream/{path}"))
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_a_path_of_very_many_segments_costs_little(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    assert (await gateway.ask(request("GET", "/upstream/m" + "/a" * 30_000))).status == 200
    assert (await gateway.ask(request("GET", "/upstream/x" + "/a" * 30_000))).status == 404


@pytest.mark.parametrize("path", ["/upstream", "/upstreams/m/x", "/%75pstream/m/x", "/upstream%2Fm/x"])
async def test_other_paths_are_none_of_its_business(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(request("GET", path))
    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("POST", 308), ("OPTIONS", 308), ("DELETE", 308)])
async def test_a_bare_name_is_redirected(house: OpenGateway, engine: StartEngine, method: str, status: int) -> None:
    served = await engine()
    gateway = await house(served, backend={"models": ["a/b c"]})
    for path, query in (("a/b%20c", ""), ("a%2Fb%20c", "?x=%2F&y")):
        reply = await gateway.ask(request(method, f"/upstream/{path}{query}"))
        assert (reply.status, reply.header("location")) == (status, f"/upstream/{path}/{query}")
    assert served.calls == []


async def test_a_body_arrives_as_it_came(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    models = {"real": {"filters": {"set": {"temperature": 0}}}}
    gateway = await house(
        served, backend={"models": ["real"]}, models=models, routing={"aliases": {"m": "real", "real": "x"}}
    )
    for body in (b'{"model": "m"}', b"no JSON", bytes(range(256)) * 1000, b""):
        reply = await gateway.ask(request("POST", "/upstream/m/v1/chat/completions", body))
        assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "alias")
        assert served.calls[-1].body == body
        assert served.calls[-1].header(b"content-length") == [b"%d" % len(body)]


async def test_a_chunked_body_is_put_together(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    chunks = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n"
    reply = await gateway.ask(request("PUT", "/upstream/m/x", None, b"transfer-encoding: chunked") + chunks)
    assert (reply.status, served.calls[0].body) == (200, b"abcde")
    assert served.calls[0].header(b"transfer-encoding") == []


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_too_large_a_body_is_refused(house: OpenGateway, engine: StartEngine, framing: str) -> None:
    served = await engine()
    gateway = await house(served, server={"max_body": 10})
    if framing == "length":
        wire = request("PUT", "/upstream/m/x", b"x" * 11)
    else:
        wire = request("PUT", "/upstream/m/x", None, b"transfer-encoding: chunked") + b"b\r\n" + b"x" * 11 + b"\r\n"
    reply = await gateway.ask(wire)
    assert (reply.status, reply.code) == (413, "invalid_request")
    assert (await gateway.ask(request("PUT", "/upstream/m/x", b"x" * 10))).status == 200
    assert len(served.calls) == 1


async def test_a_request_without_a_body_says_nothing_of_one(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    for method in ("GET", "DELETE", "OPTIONS"):
        await gateway.ask(request(method, "/upstream/m/x"))
        assert served.calls[-1].header(b"content-length") == []


async def test_headers_pass_but_for_those_of_the_connection_and_the_clients_secrets(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, backend={"api_key": "engines"}, auth={"keys": [key("a")]})
    stay = [b"Authorization: Bearer a-secret", b"Cookie: c", b"X-Api-Key: k", b"TE: x", b"X-Hop: 1", b"Upgrade: h2c"]
    passing = [b"Accept-Encoding: gzip", b"Range: bytes=1-2", b"If-None-Match: x", b"Origin: http://page"]
    await gateway.ask(request("GET", "/upstream/m/x", None, *stay, b"Connection: x-hop, upgrade", *passing))
    got = {name.lower(): value for name, value in served.calls[0].lines}
    assert {b": ".join((name, got[name])) for name in got if name not in (b"host", b"x-request-id")} == {
        b"authorization: Bearer engines",
        *(line.replace(line.split(b":")[0], line.split(b":")[0].lower(), 1) for line in passing),
    }
    assert got[b"host"] == served.url.partition("//")[2].encode()


async def test_the_engines_own_prefix_comes_first(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    served.url += "/engine/one/"
    gateway = await house(served)
    await gateway.ask(request("GET", "/upstream/m/x?y"))
    assert served.calls[0].request_line == b"GET /engine/one/x?y HTTP/1.1"


# --- what a client gets


@pytest.mark.parametrize("length", [b"content-length: 1234\r\n", b"", b"transfer-encoding: chunked\r\n"])
async def test_an_answer_to_head_has_no_body_and_the_length_of_one(
    house: OpenGateway, engine: StartEngine, length: bytes
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 200 OK\r\netag: x\r\n%s\r\n" % length)
    client = await gateway.client()
    client.send(request("HEAD", "/upstream/m/file"))
    reply = await client.head()
    assert (reply.status, reply.header("etag")) == (200, "x")
    assert reply.header("content-length") == ("1234" if b"1234" in length else None)
    client.send(request("GET", "/health"))
    assert (await client.reply()).body == b'{"status":"ok"}'
    assert served.calls[0].request_line == b"HEAD /file HTTP/1.1"
    assert (await gateway.ask()).status == 200


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_has_no_length(house: OpenGateway, engine: StartEngine, status: int) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 %d Said\r\netag: x\r\n\r\n" % status)
    client = await gateway.client()
    client.send(request("GET", "/upstream/m/file", None, b"if-none-match: x"))
    reply = await client.head()
    assert (reply.status, reply.header("content-length"), reply.header("transfer-encoding")) == (status, None, None)
    client.send(request("GET", "/health"))
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("status", [302, 404, 418, 429, 500, 501, 502, 503, 504])
async def test_whatever_an_engine_answers_is_its_answer(house: OpenGateway, engine: StartEngine, status: int) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other, checks={"failures": 1}, routing={"strategy": "priority_only"})
    served.says(b"so it is", status, b"location: /elsewhere", b"retry-after: 7")
    reply = await gateway.ask(request("GET", "/upstream/m/health"))
    assert (reply.status, reply.body, reply.header("location")) == (status, b"so it is", "/upstream/m/elsewhere")
    assert other.calls == []
    assert gateway.fleet.backends()[0].health == "healthy"
    assert gateway.fleet.backends()[0].avg_latency_ms == 0


async def test_pages_of_other_origins_are_for_the_gateway_to_let_in(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a")]})
    allowed = (b"Access-Control-Allow-Origin: *", b"Access-Control-Allow-Headers: *", b"X-Other: 1")
    served.says(b"{}", 200, *allowed)
    wish = (b"origin: http://page", b"access-control-request-method: POST", b"x-api-key: a-secret")
    reply = await gateway.ask(request("OPTIONS", "/upstream/m/x", None, *wish))
    assert (reply.status, reply.header("x-other")) == (200, "1")
    assert not [name for name, _ in reply.lines if name.lower().startswith(b"access-control-")]


async def test_one_date_is_enough(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.says(b"{}", 200, b"Date: Mon, 01 Jan 2024 00:00:00 GMT")
    reply = await gateway.ask(request("GET", "/upstream/m/x"))
    assert sum(name.lower() == b"date" for name, _ in reply.lines) <= 1


async def test_a_head_without_a_body_so_far_is_passed_on_at_once(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    gate = asyncio.Event()
    served.streams(gate, b": first", b"\n\n", served.END)
    client = await gateway.client()
    client.send(request("GET", "/upstream/m/events"))
    assert (await client.head()).status == 200
    gate.set()
    assert await client.chunk() == b": first"
    assert await client.chunk() == b"\n\n"


async def test_compressed_events_are_passed_on_as_they_come(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(GZIP, asyncio.Event())
    client = await gateway.client()
    client.send(request("GET", "/upstream/m/events", None, b"accept-encoding: gzip"))
    await client.head()
    assert await client.chunk() == GZIP
    client.close()
    await served.calls[0].closed.wait()


async def test_an_answer_that_breaks_never_looks_whole(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(event(), served.CLOSE)
    reply = await gateway.ask(request("GET", "/upstream/m/events"))
    assert (reply.status, reply.body, reply.whole) == (200, event(), False)


# --- retries


@pytest.mark.parametrize("method", REPEATABLE)
async def test_what_may_be_repeated_goes_elsewhere_when_an_engine_breaks_off(
    house: OpenGateway, engine: StartEngine, method: str
) -> None:
    broken, served = await engine(), await engine()
    gateway = await house(broken, served)
    broken.plays(broken.CLOSE)
    reply = await gateway.ask(request(method, "/upstream/m/x"))
    assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "retry")
    assert (len(broken.calls), len(served.calls)) == (1, 1)


@pytest.mark.parametrize("method", ONCE)
async def test_what_may_not_be_repeated_is_sent_once(house: OpenGateway, engine: StartEngine, method: str) -> None:
    broken, other = await engine(), await engine()
    gateway = await house(broken, other)
    broken.plays(broken.CLOSE)
    reply = await gateway.ask(request(method, "/upstream/m/x", b"{}"))
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert (len(broken.calls), len(other.calls)) == (1, 0)


@pytest.mark.parametrize("method", REPEATABLE + ONCE)
async def test_an_engine_that_was_never_reached_is_replaced(
    house: OpenGateway, engine: StartEngine, method: str
) -> None:
    served = await engine()
    gateway = await house(await engine(there=False), served)
    reply = await gateway.ask(request(method, "/upstream/m/x"))
    assert (reply.status, len(served.calls)) == (200, 1)


@pytest.mark.parametrize("method", ONCE)
async def test_what_may_not_be_repeated_uses_no_connection_that_may_break(
    house: OpenGateway, engine: StartEngine, method: str
) -> None:
    served = await engine()
    gateway = await house(served)
    for _ in range(3):
        assert (await gateway.ask(request(method, "/upstream/m/x", b"{}"))).status == 200
    assert len(served.connections) == 3
    assert (await gateway.ask(request("GET", "/upstream/m/x"))).status == 200
    assert len(served.connections) == 3


async def test_no_other_model_takes_its_place(house: OpenGateway, engine: StartEngine) -> None:
    served, other = await engine(there=False), await engine()
    other_backend = {"x": {"url": other.url, "models": ["other"]}}
    gateway = await house(
        served, backends=other_backend, routing={"fallbacks": {"m": ["other"]}, "aliases": {"n": "m"}}
    )
    for name in ("m", "n"):
        reply = await gateway.ask(request("GET", f"/upstream/{name}/x"))
        assert (reply.status, reply.code) == (502, "upstream_error")
    gateway.fleet.mark_unhealthy("a", "gone")
    for name in ("m", "n"):
        reply = await gateway.ask(request("GET", f"/upstream/{name}/x"))
        assert (reply.status, reply.code) == (503, "no_healthy_backend")
    assert other.calls == []


# --- a client that leaves


@pytest.mark.parametrize("when", ["before the answer", "in the middle"])
async def test_leaving_frees_the_engine(house: OpenGateway, engine: StartEngine, when: str) -> None:
    served = await engine()
    gateway = await house(served)
    started = () if when == "before the answer" else (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",)
    served.plays(*started, asyncio.Event())
    client = await gateway.client()
    client.send(request("POST", "/upstream/m/x", b"{}"))
    call = await served.call()
    if started:
        await client.head()
    assert gateway.pending() == {"a": 1}
    client.close()
    await call.closed.wait()
    await gateway.quiet()


# --- keys


@pytest.mark.parametrize("path", ["/upstream/m/x", "/upstream/m", "/upstream/nope/x"])
async def test_without_a_key_a_call_is_refused(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a")]})
    for method in ("GET", "OPTIONS", "POST"):
        reply = await gateway.ask(request(method, path))
        assert (reply.status, reply.code) == (401, "unauthorized")
    assert served.calls == []


async def test_a_key_is_good_for_the_engines_of_its_models(house: OpenGateway, engine: StartEngine) -> None:
    served, other = await engine(), await engine()
    backends = {"x": {"url": other.url, "models": ["other"]}}
    keys = [key("a", models=["m"]), key("b", models=["nick"]), key("c", models=["o*"])]
    gateway = await house(served, backends=backends, auth={"keys": keys}, routing={"aliases": {"nick": "m"}})
    granted = {("a", "m"), ("b", "nick"), ("c", "other")}
    for name in "abc":
        for model in ("m", "nick", "other", "nope"):
            reply = await gateway.ask(request("GET", f"/upstream/{model}/x", None, bearer(name)))
            assert reply.status == (200 if (name, model) in granted else 403), (name, model)


async def test_an_engine_with_other_models_is_out_of_reach_of_a_key_for_one(
    house: OpenGateway, engine: StartEngine
) -> None:
    shared, own = await engine(), await engine()
    keys = [key("a", models=["m"]), key("all", models=["m", "large"])]
    gateway = await house(shared, backend={"models": ["m", "large"]}, auth={"keys": keys})
    reply = await gateway.ask(request("GET", "/upstream/m/x", None, bearer("a")))
    assert (reply.status, reply.code) == (403, "forbidden")
    assert "'large'" in reply.error["message"]
    assert (await gateway.ask(request("GET", "/upstream/m/x", None, bearer("all")))).status == 200

    backends = {"z": {"url": own.url, "models": ["m"], "priority": 9}}
    gateway = await house(shared, backend={"models": ["m", "large"]}, backends=backends, auth={"keys": keys})
    reply = await gateway.ask(request("GET", "/upstream/m/x", None, bearer("a")))
    assert (reply.status, reply.header("x-enginehouse-backend"), reply.header("x-enginehouse-reason")) == (
        200,
        "z",
        "match",
    )


async def test_a_key_whose_tokens_are_counted_keeps_to_what_is_counted(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a", tokens_per_minute=1000)]})
    reply = await gateway.ask(request("POST", "/upstream/m/v1/chat/completions", b"{}", bearer("a")))
    assert (reply.status, reply.code) == (403, "forbidden")
    assert "tokens_per_minute" in reply.error["message"]
    assert served.calls == []


async def test_limits_of_requests_hold(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a", requests_per_minute=1), key("b", max_concurrent=1)]})
    assert (await gateway.ask(request("GET", "/upstream/m/x", None, bearer("a")))).status == 200
    assert (await gateway.ask(request("GET", "/upstream/m/x", None, bearer("a")))).code == "rate_limited"
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(request("GET", "/upstream/m/x", None, bearer("b")))
    await served.call(1)
    assert (await gateway.ask(request("GET", "/upstream/m/x", None, bearer("b")))).code == "rate_limited"
    client.close()
    await gateway.quiet()
    assert (await gateway.ask(request("GET", "/upstream/m/x", None, bearer("b")))).status == 200


# --- operators


async def test_it_is_seen_and_can_be_ended_like_any_request(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(request("GET", "/upstream/m/x?secret=1", None, b"x-request-id: mine"))
    await served.call()
    [seen] = msgspec.json.decode((await gateway.ask(gateway.get("/api/requests"))).body)["requests"]
    assert (seen["id"], seen["path"], seen["model"], seen["phase"]) == ("mine", "/upstream/m/x", "m", "serving")
    assert (await gateway.ask(gateway.get("/api/requests/mine", method="DELETE"))).status == 200
    assert (await client.reply()).code == "cancelled"
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(499, "match"): 1}
