"""Without a plugin that hands prompts over, one engine reads each prompt and answers, whatever the strategy says."""

from __future__ import annotations

import pytest

from enginehouse import Role
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.rescheduling import ReschedulingSettings
from tests.support.cluster_views import instance, view
from tests.support.model_engine import StartModelEngine
from tests.support.served_gateway import MODEL, OpenGateway

PATH = "/v1/completions"
BODY: dict[str, object] = {"model": MODEL, "prompt": "Tell", "max_tokens": 4}


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load_plugins(PluginSettings(disabled=["pairs"])).registry


async def test_the_first_engine_does_it_all(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, second = await model_engine(), await model_engine()
    gateway = await house(first, second, backend={"driver": "vllm"}, routing={"strategy": "llumnix_load"})
    instances = (instance("a", role=Role.PREFILL), instance("b", role=Role.DECODE))
    gateway.relay.context.router.strategies.on_view(view(*instances), ReschedulingSettings())
    reply = await gateway.ask(gateway.post(BODY, path=PATH))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "a")
    assert first.asked() == BODY
    assert second.calls == []
    [decision] = gateway.relay.context.decisions.last(9)
    assert "prefill" not in decision
