"""Paths of other products that lead to OpenAI's requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enginehouse import InvalidRequest
from enginehouse.errors import ModelNotFound
from enginehouse_kit.protocols import Forwarded, Protocol, ProtocolRequest
from enginehouse_kit.testing import check_protocol
from enginehouse_protocols.lmstudio import LMStudio
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.ollama.request import seconds
from enginehouse_protocols.openai_paths import OpenAIPaths

CARD = {
    "id": "org/m",
    "created": 0,
    "owned_by": "enginehouse",
    "status": {"value": "loaded"},
    "capabilities": {"vision": True, "tools": False},
    "max_model_len": 4096,
    "quantization": "Q4_K_M",
}


def forwarded(protocol: Protocol, path: str, body: bytes) -> tuple[str, Any]:
    made = protocol.translate(ProtocolRequest(path, body, lambda name: True))
    assert isinstance(made, Forwarded)
    return made.path, json.loads(made.body)


@pytest.mark.parametrize("protocol", [OpenAIPaths, LMStudio])
def test_the_rules_of_a_protocol(protocol: type[Protocol]) -> None:
    check_protocol(protocol)


@pytest.mark.parametrize("before", ["/openai/deployments", "/v1/engines"])
@pytest.mark.parametrize("model", ["m", "org/m", "chat"])
@pytest.mark.parametrize("endpoint", ["chat/completions", "completions", "embeddings"])
@pytest.mark.parametrize("body", [b"{}", b'{"model": "other", "n": 1}'])
def test_the_model_of_a_path_is_the_one_that_is_asked(before: str, model: str, endpoint: str, body: bytes) -> None:
    path, asked = forwarded(OpenAIPaths(), f"{before}/{model}/{endpoint}", body)
    assert (path, asked) == (f"/v1/{endpoint}", {**json.loads(body), "model": model})


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        forwarded(OpenAIPaths(), "/openai/deployments/m/embeddings", b"[]")


def test_ranks_and_lm_studios_chats_keep_their_bodies() -> None:
    assert forwarded(OpenAIPaths(), "/v2/rerank", b'{"query": "q"}') == ("/v1/rerank", {"query": "q"})
    assert forwarded(OpenAIPaths(), "/openai/v1/embeddings", b"{}") == ("/v1/embeddings", {})
    assert forwarded(LMStudio(), "/api/v0/chat/completions", b"{}") == ("/v1/chat/completions", {})


def test_lm_studios_models_say_what_they_can() -> None:
    studio = LMStudio()
    [entry] = json.loads(studio.page("GET", "/api/v0/models", b"", [CARD]))["data"]
    assert (entry["type"], entry["state"], entry["max_context_length"]) == ("vlm", "loaded", 4096)
    assert (entry["capabilities"], entry["quantization"]) == ([], "Q4_K_M")
    assert json.loads(studio.page("GET", "/api/v0/models/org/m", b"", [CARD])) == entry
    with pytest.raises(ModelNotFound):
        studio.page("GET", "/api/v0/models/m", b"", [CARD])


def test_ollama_shows_what_a_model_can() -> None:
    shown = json.loads(Ollama().page("POST", "/api/show", b'{"model": "org/m"}', [CARD]))
    assert shown["capabilities"] == ["completion", "vision"]
    unknown = {**CARD, "capabilities": {}}
    shown = json.loads(Ollama().page("POST", "/api/show", b'{"model": "org/m"}', [unknown]))
    assert shown["capabilities"] == ["completion", "tools"]
    with pytest.raises(InvalidRequest, match="model is required"):
        Ollama().page("POST", "/api/show", b"{}", [CARD])


@pytest.mark.parametrize(("served", "asked"), [("m", "m"), ("m", "m:latest"), ("m:latest", "m"), ("m:1b", "m:1b")])
def test_ollama_shows_a_model_with_and_without_latest(served: str, asked: str) -> None:
    other = {**CARD, "id": f"{served}x"}
    cards = [other, {**CARD, "id": served, "max_model_len": 7}]
    shown = json.loads(Ollama().page("POST", "/api/show", json.dumps({"model": asked}).encode(), cards))
    assert shown["model_info"]["llama.context_length"] == 7
    with pytest.raises(ModelNotFound):
        Ollama().page("POST", "/api/show", json.dumps({"model": asked}).encode(), [other])


@pytest.mark.parametrize(
    ("said", "meant"),
    [(None, None), (30, 30.0), ("5m", 300.0), ("1h30m", 5400.0), ("0", 0.0), (0, 0.0), ("90", 90.0), ("1.5s", 1.5)],
)
def test_durations_are_gos_or_seconds(said: float | str | None, meant: float | None) -> None:
    assert seconds(said) == meant


@pytest.mark.parametrize("said", [-1, "-1", "-1m", -0.5])
def test_a_negative_duration_has_no_end(said: float | str) -> None:
    assert seconds(said) == float("inf")


@pytest.mark.parametrize("said", ["", "soon", "5 m", "m5", "5m!"])
def test_other_texts_are_no_durations(said: str) -> None:
    with pytest.raises(InvalidRequest, match="keep_alive"):
        seconds(said)
