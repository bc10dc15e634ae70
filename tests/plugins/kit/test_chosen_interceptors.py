"""Which interceptors middleware asks: guards never fail open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse import ConfigError
from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.config.schema import Config, InterceptorSettings
from enginehouse_kit.interceptors import Interceptor, InterceptorAdapter, chosen_interceptors
from tests.support.registries import registry_with


class Own(Interceptor):
    """Does nothing."""


class NoAdapter(Interceptor):
    table = "guards"


class Adapter(InterceptorAdapter):
    kind, table = "interceptor", "guards"

    def adapt(self, plugin: Any, made: Any, *, passes: bool) -> Interceptor:
        return Own()


def configured(
    factory: type[Interceptor], *interceptors: str | InterceptorSettings, guards: Sequence[str] = ()
) -> ConfiguredPlugins:
    registry = registry_with("interceptor", "own", factory, instead_of="guards")
    return ConfiguredPlugins(lambda: Config(interceptors=[*interceptors], guards=[*guards]), registry)


@pytest.mark.parametrize("factory", [Own, NoAdapter])
def test_guards_that_nothing_asks_are_refused(factory: type[Interceptor]) -> None:
    with pytest.raises(ConfigError, match="no enabled plugin asks guards"):
        chosen_interceptors(configured(factory, guards=["own"]))


def test_an_adapter_itself_sees_no_request() -> None:
    with pytest.raises(ConfigError, match="'own' is used with 'guards', and sees no request itself"):
        chosen_interceptors(configured(Adapter, "own"))


def test_each_entry_has_its_settings() -> None:
    entry = InterceptorSettings(type="own", timeout=2, on_error="pass")
    plain, passes = chosen_interceptors(configured(Own, "own", entry))
    assert (plain.timeout, plain.passes, plain.outer) == (5, False, False)
    assert (passes.timeout, passes.passes, passes.outer) == (2, True, False)


def test_a_parameter_that_an_entry_does_not_have_is_named() -> None:
    entry = InterceptorSettings(type="own", parameters={"size": 3})
    with pytest.raises(ConfigError) as refused:
        chosen_interceptors(configured(Own, entry))
    assert refused.value.key == "interceptors[0].parameters.size"
