"""A plugin of somebody else makes interceptors of another kind, in place of the bundled one."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse import ConfigError, PluginError
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import collect
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.runtime import PluginId
from enginehouse_kit.guards import Guard
from enginehouse_kit.interceptors import InterceptedRequest, Interceptor, InterceptorAdapter, Join, Refuse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


class Nothing(Guard):
    pass


class Other(Interceptor):
    """Says what it was made with."""

    def __init__(self, said: object) -> None:
        self.said = said

    async def before(self, request: InterceptedRequest) -> Any:
        return self.said


class OtherAdapter(InterceptorAdapter):
    kind = "guard"
    table = "guards"
    made: Any = None

    def adapt(self, plugin: PluginId, made: Any, *, passes: bool) -> Interceptor:
        assert (plugin.kind, plugin.type, type(made), passes) == ("guard", "nothing", Nothing, False)
        if isinstance(self.made, Exception):
            raise self.made
        interceptor: Interceptor = self.made
        return interceptor


class Adapts(Interceptor):
    """No adapter, although a method of its own has that name."""

    def adapt(self, text: str) -> str:
        return text.lower()

    async def before(self, request: InterceptedRequest) -> Any:
        return Refuse(451, "not_here", self.adapt("NO"))


@pytest.fixture
def registry() -> Registry:
    found = collect(PluginSettings(enabled=[], disabled=["guards"])).registry
    origin = {"entry_point": "t", "module": "t", "distribution": "t", "version": "1"}
    for kind, type, factory in (
        ("interceptor", "other", OtherAdapter),
        ("interceptor", "adapts", Adapts),
        ("guard", "nothing", Nothing),
    ):
        found.add([Registered(kind=kind, type=type, factory=factory, **origin)])
    return found


@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        (Refuse(451, "not_here", "No"), 451, "No"),
        (Join("r1"), 500, "The guard 'nothing' of plugin 't' must return None, Refuse, Change or Answer, got Join"),
    ],
)
async def test_what_it_makes_is_asked_as_the_guard(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, said: object, status: int, text: str
) -> None:
    monkeypatch.setattr(OtherAdapter, "made", Other(said))
    served = await engine()
    gateway = await house(served, guards=["nothing"])
    reply = await gateway.ask()
    assert (reply.status, served.calls) == (status, [])
    assert text in reply.error["message"]


@pytest.mark.parametrize(
    ("made", "text"),
    [(ValueError("broken"), "the interceptor 'other' cannot be prepared"), ("text", "must make an Interceptor, got")],
)
async def test_one_that_fails_lets_no_gateway_start(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, made: object, text: str
) -> None:
    monkeypatch.setattr(OtherAdapter, "made", made)
    with pytest.raises(PluginError, match=text):
        await house(await engine(), guards=["nothing"])


async def test_it_sees_no_request_itself(house: OpenGateway, engine: StartEngine) -> None:
    with pytest.raises(ConfigError, match="'other' is used with 'guards', and sees no request itself"):
        await house(await engine(), interceptors=["other"])


async def test_a_method_of_that_name_makes_no_adapter(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), interceptors=["adapts"])
    reply = await gateway.ask()
    assert (reply.status, reply.error["message"]) == (451, "no")
