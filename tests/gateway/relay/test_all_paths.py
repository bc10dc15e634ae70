"""The same checks on all paths that are relayed, whichever protocol has them."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from enginehouse.api.admission import INFERENCE_PATHS
from enginehouse_protocols.lmstudio import LMStudio
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.openai_paths import OpenAIPaths
from enginehouse_protocols.responses.protocol import Responses
from tests.support.keys import bearer, key
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import MODEL, OpenGateway

PROTOCOLS = (Messages(), Responses(), Ollama(), LMStudio(), OpenAIPaths())
PATHS = sorted({*INFERENCE_PATHS, *(path.replace("{model:path}", MODEL) for each in PROTOCOLS for path in each.paths)})
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hi"}],
    "prompt": "hi",
    "input": "hi",
    "max_tokens": 4,
}
RAW = json.dumps(BODY).encode()
KEY = bearer("ann")
REFUSED: dict[str, tuple[bytes, tuple[bytes, ...], int]] = {
    "compressed": (gzip.compress(RAW), (b"content-encoding: gzip", KEY), 415),
    "compressed and not named": (gzip.compress(RAW), (KEY,), 415),
    "too large": (RAW + b" " * 70_000, (KEY,), 413),
    "no JSON": (b"{", (KEY,), 400),
    "no object": (b"[]", (KEY,), 400),
    "no UTF-8": (RAW.replace(b"hi", b"\xff"), (KEY,), 400),
    "too deep": (b'{"model": "m", "messages": ' + b"[" * 30_000, (KEY,), 400),
    "another model": (RAW.replace(b'"m"', b'"other"'), (KEY,), 404),
    "a head that is too large": (RAW, (b"x-large: " + b"x" * 66_000, KEY), 400),
    "no key": (RAW, (), 401),
    "another key": (RAW, (b"authorization: Bearer x",), 401),
}


@pytest.mark.parametrize("path", PATHS)
async def test_what_is_refused_is_refused_on_every_path(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(
        served,
        auth={"keys": [key("ann")]},
        models={MODEL: {"endpoints": []}},
        server={"max_body": 65536},
    )
    names_model = MODEL in path.split("/")  # then the body need not
    cases = {name: case for name, case in REFUSED.items() if not (names_model and name == "another model")}
    found = {}
    for name, (body, lines, _) in cases.items():
        reply = await gateway.ask(gateway.post(body, *lines, path=path))
        found[name] = reply.status
        assert (reply.header("content-type") or "").startswith("application/json"), name
        assert "error" in json.loads(reply.body), name
    assert found == {name: status for name, (_, _, status) in cases.items()}
    assert not served.calls


@pytest.mark.parametrize("path", PATHS)
async def test_another_method_is_405_on_every_path(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await house(await engine(), auth={"keys": [key("ann")]})
    methods = ("PUT", "DELETE", "OPTIONS", "GET", "HEAD")
    for method in methods[:3] if path == "/v1/audio/voices" else methods:  # which is also a page of engines
        reply = await gateway.ask(gateway.get(path, KEY, b"connection: close", method=method))
        assert reply.status == 405, method
        assert "POST" in (reply.header("allow") or ""), method
