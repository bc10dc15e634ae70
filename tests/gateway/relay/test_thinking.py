"""Each engine gets what a client says of thinking as its driver says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.relay.test_dialects import ANSWER, HELLO
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway

CHATS: dict[str, dict[str, list[str]]] = {MODEL: {"endpoints": []}}
ASKED = {"messages": HELLO, "max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 5000}}
NAMES = ("reasoning_effort", "thinking_budget_tokens", "thinking_token_budget", "chat_template_kwargs")


def told(served: ScriptedEngine) -> dict[str, Any]:
    asked = json.loads(served.calls[-1].body)
    return {name: asked[name] for name in NAMES if name in asked}


async def test_an_engine_that_is_asked_next_gets_its_own_fields(house: OpenGateway, engine: StartEngine) -> None:
    first, second = await engine(), await engine()
    backends = {
        "a": {"url": first.url, "models": [MODEL], "driver": "llamacpp"},
        "b": {"url": second.url, "models": [MODEL], "driver": "vllm"},
    }
    gateway = await house(backends=backends, models=CHATS)
    first.says(b'{"error": {"message": "busy"}}', 503)
    second.says(json.dumps(ANSWER).encode())
    assert (await gateway.ask(gateway.post(ASKED, path="/v1/messages"))).status == 200
    assert told(first) == {
        "reasoning_effort": "medium",
        "thinking_budget_tokens": 5000,
        "chat_template_kwargs": {"reasoning_effort": "medium"},
    }
    assert told(second) == {"reasoning_effort": "medium"}


@pytest.mark.parametrize("asked", [{"thinking": {"type": "disabled"}}, {"output_config": {"effort": "none"}}])
async def test_every_engine_is_told_not_to_think(
    house: OpenGateway, engine: StartEngine, asked: dict[str, Any]
) -> None:
    served = await engine()
    gateway = await house(served, models=CHATS, backend={"driver": "llamacpp"})
    served.says(json.dumps(ANSWER).encode())
    assert (await gateway.ask(gateway.post({**ASKED, "thinking": None, **asked}, path="/v1/messages"))).status == 200
    assert told(served) == {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}


async def test_filters_of_the_model_come_last(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    models = {MODEL: {"endpoints": [], "filters": {"strip": ["thinking_budget_tokens"]}}}
    gateway = await house(served, models=models, backend={"driver": "llamacpp"})
    served.says(json.dumps(ANSWER).encode())
    assert (await gateway.ask(gateway.post(ASKED, path="/v1/messages"))).status == 200
    assert "thinking_budget_tokens" not in told(served)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/api/chat"])
async def test_unknown_levels_are_refused_by_name(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served, models=CHATS)
    asked = {"output_config": {"effort": "huge"}, "reasoning": {"effort": "huge"}, "think": "huge", "input": "hi"}
    reply = await gateway.ask(gateway.post({**ASKED, **asked}, path=path))
    assert reply.status == 400
    assert b"huge" in reply.body
    assert not served.calls
