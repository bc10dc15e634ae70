"""The same checks on all paths that are served, whichever protocol has them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import pytest
from starlette.routing import compile_path

from enginehouse.http.admission import FORM_PATHS, INFERENCE_PATHS
from enginehouse.http.relayed_paths import ENGINE_PAGES
from enginehouse_protocols.lmstudio import LMStudio
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.openai_paths import OpenAIPaths
from enginehouse_protocols.responses.protocol import Responses
from tests.support.keys import bearer, key
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

PROTOCOLS = (Messages(), Responses(), Ollama(), LMStudio(), OpenAIPaths())
PATHS = sorted({*INFERENCE_PATHS, *(path.replace("{model:path}", MODEL) for each in PROTOCOLS for path in each.paths)})
OWN_PAGES = sorted(
    (method, path.replace("{id}", "x").replace("{id:path}", MODEL)) for each in PROTOCOLS for method, path in each.pages
)
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hi"}],
    "prompt": "hi",
    "input": "hi",
    "max_tokens": 4,
}
RAW = json.dumps(BODY).encode()
FORM = (
    b'--b1\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--b1\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\nhi\r\n--b1--\r\n'
)
IS_FORM = b"content-type: multipart/form-data; boundary=b1"
KEY = bearer("ann")
CLOSE = b"connection: close"
ORIGIN = "https://a.example"
LARGE_HEAD = b"x-large: " + b"x" * 66_000


class Case(NamedTuple):
    body: bytes
    lines: Sequence[bytes]
    status: int


def cases(body: bytes, *of_body: bytes) -> dict[str, Case]:
    """What is refused whatever the body is; ``of_body``: the header lines of one that is not."""
    return {
        "gzip": Case(gzip.compress(body), (*of_body, b"content-encoding: gzip", KEY), 415),
        "deflate": Case(zlib.compress(body), (*of_body, b"content-encoding: deflate", KEY), 415),
        "twice": Case(gzip.compress(gzip.compress(body)), (*of_body, b"content-encoding: gzip, gzip", KEY), 415),
        "compressed and not named": Case(gzip.compress(body), (*of_body, KEY), 415),
        "too large": Case(body + b" " * 70_000, (*of_body, KEY), 413),
        "a head that is too large": Case(body, (*of_body, LARGE_HEAD, KEY), 400),
        "empty": Case(b"", (*of_body, KEY), 400),
        "no key": Case(body, of_body, 401),
        "another key": Case(body, (*of_body, b"authorization: Bearer x"), 401),
        "a key for other models": Case(body, (*of_body, bearer("ben")), 403),
        "a key over its limit": Case(body, (*of_body, bearer("cyn")), 429),
    }


REFUSED = cases(RAW) | {
    "no JSON": Case(b"{", (KEY,), 400),
    "no object": Case(b"[]", (KEY,), 400),
    "no UTF-8": Case(RAW.replace(b"hi", b"\xff"), (KEY,), 400),
    "too deep": Case(b'{"model": "m", "messages": ' + b"[" * 30_000, (KEY,), 400),
    "a form": Case(FORM, (IS_FORM, KEY), 400),
    "fields of a form": Case(b"model=m&input=hi", (b"content-type: application/x-www-form-urlencoded", KEY), 400),
}
OF_MODELS = {
    "another model": Case(RAW.replace(b'"m"', b'"other"'), (KEY,), 404),
    "no model": Case(RAW.replace(b'"model"', b'"other"'), (KEY,), 400),
    "a model that is no text": Case(RAW.replace(b'"m"', b"null"), (KEY,), 400),
    "a model without a name": Case(RAW.replace(b'"m"', b'""'), (KEY,), 400),
}
REFUSED_FORMS = cases(FORM, IS_FORM) | {
    "another model": Case(FORM.replace(b"\r\nm\r\n", b"\r\nother\r\n"), (IS_FORM, KEY), 404),
    "no model": Case(FORM.replace(b'"model"', b'"other"'), (IS_FORM, KEY), 400),
    "no boundary": Case(FORM, (b"content-type: multipart/form-data", KEY), 400),
}


async def opened(house: OpenGateway, served: ScriptedEngine) -> ServedGateway:
    served.otherwise((served.answer(b'{"error": {"message": "an engine\'s", "code": 400}}', 400),))
    return await house(
        served,
        auth={"keys": [key("ann"), key("ben", models=["others"]), key("cyn", requests_per_minute=1)]},
        models={MODEL: {"endpoints": []}},
        server={"max_body": 65536, "cors": [ORIGIN]},
    )


async def check_methods(
    gateway: ServedGateway, path: str, own: set[str], of_pages: AbstractSet[str] = frozenset()
) -> None:
    """All methods but its ``own`` are refused at ``path``, and pages of other origins may ask which there are.

    ``of_pages``: those of pages that have the path too, such as one of a response with the name.
    """
    if "GET" in own:
        own = own | {"HEAD"}
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - own - of_pages:
        reply = await gateway.ask(gateway.get(path, KEY, CLOSE, method=method))
        assert reply.status == 405, method
        assert {*(reply.header("allow") or "").split(", ")} == own, method
        assert bool(reply.body) == (method != "HEAD"), method
    for origin, status in ((ORIGIN, 200), ("https://b.example", 400)):
        lines = [b"origin: " + origin.encode(), b"access-control-request-method: POST", CLOSE]
        reply = await gateway.ask(gateway.get(path, *lines, method="OPTIONS"))
        assert (reply.status, reply.header("access-control-allow-origin")) == (
            status,
            origin if status == 200 else None,
        )


@pytest.mark.parametrize("path", [*PATHS, *FORM_PATHS])
async def test_every_path_of_engines_has_the_same_checks(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await opened(house, await engine())
    names_model = MODEL in path.split("/")  # then the body need not
    refused = REFUSED_FORMS if path in FORM_PATHS else REFUSED if names_model else REFUSED | OF_MODELS
    body, of_body = (FORM, (IS_FORM,)) if path in FORM_PATHS else (RAW, ())
    for lines in ((bearer("cyn"),), (b"x-api-key: x", KEY), (b"authorization: Bearer x", b"x-api-key: ann-secret")):
        reply = await gateway.ask(gateway.post(body, *lines, *of_body, path=path))
        assert reply.status == 400
        assert "an engine's" in str(json.loads(reply.body)["error"])
    found = {}
    for name, case in refused.items():
        reply = await gateway.ask(gateway.post(case.body, *case.lines, path=path))
        found[name] = reply.status
        assert (reply.header("content-type") or "").startswith("application/json"), name
        assert "error" in json.loads(reply.body), name
        assert bool(reply.header("retry-after")) == (reply.status == 429), name
    assert found == {name: case.status for name, case in refused.items()}
    methods = [method for each in PROTOCOLS for method, page in each.pages if compile_path(page)[0].match(path)]
    of_pages = {*methods, *(("HEAD",) if "GET" in methods else ())}
    await check_methods(gateway, path, {"POST", *(("GET",) if path in ENGINE_PAGES else ())}, of_pages)


@pytest.mark.parametrize("path", sorted({path for _, path in OWN_PAGES}))
async def test_every_page_of_protocols_has_the_same_checks(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await opened(house, await engine())
    methods = {method for method, other in OWN_PAGES if other == path}
    for method in methods:
        length = [b"content-length: 0"] if method == "POST" else []

        async def asks(method: str, *lines: bytes) -> int:
            reply = await gateway.ask(gateway.get(path, *lines, CLOSE, method=method))
            assert bool(reply.body) == (method != "HEAD")
            return reply.status

        assert await asks(method, *length) == 401
        assert await asks(method, *length, b"authorization: Bearer x") == 401
        assert await asks(method, *length, KEY, LARGE_HEAD) == 400
        assert await asks(method, *length, KEY) in (200, 400, 404)
        if method == "GET":
            assert await asks("HEAD", KEY) == await asks("GET", KEY)
        if method == "POST":
            assert (await gateway.ask(gateway.post(b"x" * 66_000, KEY, path=path))).status == 413
    if methods != {"GET", "DELETE"}:  # each of these is a route of its own, and 405 names the first
        await check_methods(gateway, path, methods)


@pytest.mark.parametrize("path", sorted(ENGINE_PAGES))
async def test_every_page_of_engines_has_the_same_checks(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await opened(house, served)
    page = f"{path}?model={MODEL}"
    for method in ("GET", "HEAD"):
        assert (await gateway.ask(gateway.get(path, CLOSE, method=method))).status == 401
        assert (await gateway.ask(gateway.get(path, KEY, CLOSE, method=method))).status == 400  # there is no model
        assert (await gateway.ask(gateway.get(f"{path}?model=other", KEY, CLOSE, method=method))).status == 404
        assert (await gateway.ask(gateway.get(page, bearer("ben"), CLOSE, method=method))).status == 403
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    reply = await gateway.ask(gateway.get(page, KEY, CLOSE, method="HEAD"))
    assert (reply.status, reply.header("content-length")) == (200, "5")
    assert (await gateway.ask(gateway.get(page, KEY))).status == 400  # the engine's
    assert (await gateway.ask(gateway.get(page, KEY, LARGE_HEAD))).status == 400
    await check_methods(gateway, path, {"GET", *(("POST",) if path in PATHS else ())})
