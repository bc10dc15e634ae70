"""The endpoints of engines that are routed by model, and the model list."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse.http.admission import INFERENCE_PATHS
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

ENGINES_OWN = [path for path in INFERENCE_PATHS if not path.startswith("/v1/")]


def read(reply: RawResponse) -> Any:
    assert reply.status == 200, reply.body
    return msgspec.json.decode(reply.body)


@pytest.mark.parametrize("path", INFERENCE_PATHS)
async def test_a_post_goes_to_the_same_path_of_the_models_engine(
    path: str, house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, routing={"aliases": {"gpt-4": "m"}})
    reply = await gateway.ask(gateway.post({"model": "gpt-4", "content": "x", "input_prefix": "a"}, path=path))
    assert reply.status == 200
    call = await served.call()
    assert call.request_line == f"POST {path} HTTP/1.1".encode()
    assert msgspec.json.decode(call.body)["model"] == "m"


@pytest.mark.parametrize("path", ENGINES_OWN)
async def test_an_engines_own_endpoint_needs_a_model_too(path: str, house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.post(b'{"content": "x"}', path=path))
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert b"name the model to use" in reply.body


async def test_errors_of_anthropics_token_count_have_anthropics_form(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.post({"model": "gone", "messages": []}, path="/v1/messages/count_tokens"))
    assert reply.status == 404
    assert msgspec.json.decode(reply.body)["type"] == "error"


@pytest.mark.parametrize("path", ["/props", "/slots", "/v1/audio/voices", "/sdapi/v1/loras"])
async def test_a_page_of_one_models_engine(path: str, house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    assert (await gateway.ask(gateway.get(f"{path}?model=m&autoload=false"))).status == 200
    assert (await served.call()).request_line == f"GET {path}?model=m&autoload=false HTTP/1.1".encode()
    unnamed = await gateway.ask(gateway.get(path))
    assert (unnamed.status, unnamed.code) == (400, "invalid_request")
    assert (await gateway.ask(gateway.get(f"{path}?model=gone"))).status == 404


@pytest.mark.parametrize("value", ["false", "0"])
async def test_a_page_of_an_engine_loads_no_model_if_its_client_says_so(
    house: OpenGateway, engine: StartEngine, value: str
) -> None:
    gateway = await house(await engine(), models={"cold": {"command": "engine ${port}"}})
    reply = await gateway.ask(gateway.get(f"/props?model=cold&autoload={value}"))
    assert (reply.status, reply.code) == (409, "not_loaded")


async def test_the_model_list_has_names_descriptions_and_states(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), models={"m": {"name": "Model M", "description": "for tests"}})
    [card] = read(await gateway.ask(gateway.get("/v1/models")))["data"]
    assert (card["id"], card["name"], card["description"]) == ("m", "Model M", "for tests")
    assert card["status"] == {"value": "loaded"}


async def test_an_unlisted_model_is_only_shown_by_its_id_and_alias(house: OpenGateway, engine: StartEngine) -> None:
    models = {"m": {"unlisted": True}, "cold": {"command": "engine ${port}"}}
    gateway = await house(await engine(), models=models, routing={"aliases": {"n": "m"}})
    [card] = read(await gateway.ask(gateway.get("/v1/models")))["data"]
    assert (card["id"], card["status"]) == ("cold", {"value": "unloaded"})
    for name in "mn":
        assert read(await gateway.ask(gateway.get(f"/v1/models/{name}")))["id"] == name
    assert (await gateway.ask(gateway.post())).status == 200


async def test_a_model_is_shown_by_a_name_that_a_pattern_stands_for(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), routing={"aliases": {"claude-*": "m"}})
    card = read(await gateway.ask(gateway.get("/v1/models/claude-x")))
    assert (card["id"], card["root"]) == ("claude-x", "m")
    unknown = await gateway.ask(gateway.get("/v1/models/mm"))
    assert (unknown.status, unknown.code) == (404, "model_not_found")
    assert b'did you mean \\"m\\"?' in unknown.body


async def test_the_model_list_says_what_models_can(house: OpenGateway, engine: StartEngine) -> None:
    one, other = await engine(), await engine()
    can = {"a": {"m": {"vision": False, "tools": True}}, "b": {"m": {"vision": True}}}
    backends = {name: {"url": each.url, "models": can[name]} for name, each in (("a", one), ("b", other))}
    gateway = await house(backends=backends)
    [card] = read(await gateway.ask(gateway.get("/v1/models")))["data"]
    assert card["capabilities"] == {"vision": True, "tools": True}


@pytest.mark.parametrize(
    "path",
    [
        "/openai/deployments/m/chat/completions?api-version=2024-10-21",
        "/v1/engines/m/chat/completions",
        "/openai/v1/chat/completions",
        "/api/v0/chat/completions",
    ],
)
async def test_other_paths_lead_to_chats(path: str, house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.says(b'{"the":  "answer"}')
    reply = await gateway.ask(gateway.post({"model": "m"}, path=path))
    assert (reply.status, reply.body) == (200, b'{"the":  "answer"}')
    call = await served.call()
    assert (call.request_line, msgspec.json.decode(call.body)) == (
        b"POST /v1/chat/completions HTTP/1.1",
        {"model": "m"},
    )


async def test_other_paths_stream_and_have_errors(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(b'data: {"n":1}\n\n', b"data: [DONE]\n\n", served.END)
    path = "/openai/deployments/m/chat/completions"
    reply = await gateway.ask(gateway.post(stream=True, path=path))
    assert reply.body == b'data: {"n":1}\n\ndata: [DONE]\n\n'
    reply = await gateway.ask(gateway.post(path="/openai/deployments/gone/chat/completions"))
    assert (reply.status, reply.code) == (404, "model_not_found")
    reply = await gateway.ask(gateway.post(b"[]", path=path))
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_a_404_names_no_unlisted_model(house: OpenGateway, engine: StartEngine) -> None:
    models = {"m": {"unlisted": True}, "mild": {"command": "engine ${port}"}}
    gateway = await house(await engine(), models=models)
    reply = await gateway.ask(gateway.post({"model": "n"}))
    assert reply.status == 404
    assert msgspec.json.decode(reply.body)["error"]["details"]["models"] == ["mild"]


async def test_a_404_names_aliases_too(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), routing={"aliases": {"gpt-4o": "m", "lost": "gone"}})
    reply = await gateway.ask(gateway.post({"model": "gpt-4"}))
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["details"]["models"]) == (404, ["m", "gpt-4o"])
    assert 'did you mean "gpt-4o"?' in error["message"]


async def test_a_model_that_may_still_be_listed_is_not_unknown_to_a_protocol(house: OpenGateway) -> None:
    gateway = await house(backends={"late": {"url": "http://127.0.0.1:9"}})
    reply = await gateway.ask(gateway.post({"model": "m"}, path="/api/show"))
    assert (reply.status, reply.header("retry-after")) == (503, "5")


@pytest.mark.parametrize("body", [b'{"model":"\xff"}', b'{"a":' + b"[" * 20_000])
async def test_a_body_that_nobody_can_read_is_the_clients_fault_in_its_protocol(
    body: bytes, house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.post(body, path="/v1/messages"))
    assert reply.status == 400
    assert msgspec.json.decode(reply.body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", [b"/api/tags", b"/api/ps", b"/api/version", b"/v1/models"])
async def test_the_head_of_a_page_is_that_of_get(house: OpenGateway, engine: StartEngine, path: bytes) -> None:
    gateway = await house(await engine())
    lines = b" %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % path
    head, whole = [await gateway.ask(method + lines) for method in (b"HEAD", b"GET")]
    assert (head.status, head.value("content-length")) == (200, whole.value("content-length"))
    assert (head.body, len(whole.body)) == (b"", int(whole.value("content-length")))


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages/count_tokens", "reranking"])
async def test_llama_swaps_versionless_paths_are_those_of_a_url_with_a_version(
    house: OpenGateway, engine: StartEngine, path: str
) -> None:
    served = await engine()
    gateway = await house(served, backend={"url": f"{served.url}/api/v4"}, compat={"llama_swap": True})
    assert (await gateway.ask(gateway.post({"model": "m"}, path=f"/v/{path}"))).status == 200
    assert (await served.call()).request_line == f"POST /api/v4/{path} HTTP/1.1".encode()
