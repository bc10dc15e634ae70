"""``[plugins.TYPE]`` and ``[plugins.KIND.TYPE]`` reach every kind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse.app.plugin_instances import check_parameters, create
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import ConfigError, ConfigErrors
from enginehouse.plugin_manager.registry import Registered, Registry

ORIGIN = {"entry_point": "acme", "module": "acme", "distribution": "enginehouse-acme", "version": "1"}


def takes(*fields: str) -> type:
    class Made:
        Config = msgspec.defstruct("Config", [(field, int, 0) for field in fields], forbid_unknown_fields=True)

        def __init__(self, config: Any) -> None:
            self.config = config

    return Made


class Plain:
    pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry that does not check what it makes: these tests are about parameters only."""
    monkeypatch.setattr("enginehouse.plugin_manager.registry.faults", lambda interface, product: ())
    registry = Registry()
    offered: list[tuple[str, str, type]] = [
        ("scorer", "load", takes("weight")),
        ("filter", "load", takes("limit")),
        ("observer", "load", Plain),
        ("driver", "own", takes("a", "b")),
        ("extractor", "filter", takes("a")),
    ]
    registry.add([Registered(kind=kind, type=type, factory=factory, **ORIGIN) for kind, type, factory in offered])
    return registry


def config(parameters: dict[str, dict[str, Any]]) -> Config:
    return Config(plugins=PluginSettings(parameters=parameters))


def test_types_of_two_kinds_have_tables_of_their_own(registry: Registry) -> None:
    both = config({"scorer": {"load": {"weight": 2}}, "filter": {"load": {"limit": 3}}})
    check_parameters(both, registry)
    assert create(both, registry, "scorer", "load").config.weight == 2
    assert create(both, registry, "filter", "load").config.limit == 3


def test_the_table_of_a_type_reaches_all_kinds_that_have_none_of_their_own(registry: Registry) -> None:
    shared = config({"load": {"weight": 2}, "filter": {"load": {"limit": 3}}})
    assert create(shared, registry, "scorer", "load").config.weight == 2
    assert create(shared, registry, "filter", "load").config.limit == 3
    assert isinstance(create(shared, registry, "observer", "load"), Plain)


def test_a_table_that_does_not_fit_all_kinds_is_refused_with_its_key(registry: Registry) -> None:
    with pytest.raises(ConfigError) as caught:
        create(config({"load": {"weight": 2}}), registry, "filter", "load")
    assert caught.value.key == "plugins.load.weight"
    with pytest.raises(ConfigError) as caught:
        create(config({"filter": {"load": {"weight": 2}}}), registry, "filter", "load")
    assert caught.value.key == "plugins.filter.load.weight"


def test_an_instance_has_parameters_of_its_own_besides_those_of_its_type(registry: Registry) -> None:
    both = config({"own": {"a": 1, "b": 1}})
    made = create(both, registry, "driver", "own", "key", {"b": 2})
    assert (made.config.a, made.config.b) == (1, 2)
    with pytest.raises(ConfigError) as caught:
        create(both, registry, "driver", "own", "routing.scorers[0]", {"c": 2})
    assert caught.value.key == "routing.scorers[0].parameters.c"


def test_a_type_that_is_called_as_a_kind_needs_its_kind(registry: Registry) -> None:
    named = config({"extractor": {"filter": {"a": 5}}})
    check_parameters(named, registry)
    assert create(named, registry, "extractor", "filter").config.a == 5


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"laod": {}}, "plugins.laod"),
        ({"scorer": {"laod": {}}}, "plugins.scorer.laod"),
        ({"scorer": {"load": 1}}, "plugins.scorer.load"),
        ({"scorer": {"load": {"wieght": 1}}}, "plugins.scorer.load.wieght"),
        ({"scorer": {"load": {"limit": 1}}}, "plugins.scorer.load.limit"),
        ({"observer": {"load": {"limit": 1}}}, "plugins.observer.load.limit"),
        ({"load": {"wieght": 1}}, "plugins.load.wieght"),
    ],
)
def test_a_table_or_a_parameter_of_nothing_is_refused(registry: Registry, parameters: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_parameters(config(parameters), registry)
    assert caught.value.key == key
    assert caught.value.remedy


def test_all_tables_and_parameters_of_nothing_are_told_at_once(registry: Registry) -> None:
    with pytest.raises(ConfigErrors) as caught:
        check_parameters(config({"laod": {}, "load": {"wieght": 1, "limti": 1}, "own": {"c": 1}}), registry)
    assert [each.key for each in caught.value.errors] == [
        *("plugins.laod", "plugins.load.wieght", "plugins.load.limti", "plugins.own.c")
    ]


def test_a_shared_table_has_the_parameters_of_all_kinds(registry: Registry) -> None:
    check_parameters(config({"load": {"weight": 1, "limit": 1}}), registry)
