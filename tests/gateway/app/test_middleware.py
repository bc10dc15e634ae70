"""Which middleware a gateway has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from enginehouse import Middleware, PluginError
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.middleware import MiddlewareFacts, OpenExchange, Opening, ResponseWriter
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered


class Own(Middleware):
    """Passes everything."""

    def use(self, gateway: MiddlewareFacts) -> None: ...

    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        return inner(writer, opening)


class Odd(Own):
    serves: ClassVar[Any] = "tea"


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        (Own, "'interception'.* and .*'own'.* both serve interceptors: disable the plugin of one of them"),
        (Odd, "the middleware 'own' must serve 'interceptors' or 'protocols', got 'tea'"),
    ],
)
def test_middleware_that_cannot_be_used_is_refused(factory: type[Middleware], problem: str) -> None:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    registry.add([Registered(kind="middleware", type="own", factory=factory, **origin)])
    with pytest.raises(PluginError, match=problem):
        Gateway(Config(), registry)
