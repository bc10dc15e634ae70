from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from enginehouse import Candidate, ConfigError, PluginError, Requirements, Scorer
from enginehouse.plugin_manager.registry import Registered, Registry


class Fixed:
    class Config(msgspec.Struct):
        figure: int
        per_model: dict[str, int] = {}

    def __init__(self, config: Config) -> None:
        self.config = config

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [self.config.figure] * len(candidates)


class Zero(Scorer):
    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [0] * len(candidates)


def registered(
    type: str, factory: Callable[..., object], kind: str = "scorer", entry_point: str = "figures"
) -> Registered:
    return Registered(
        kind=kind,
        type=type,
        factory=factory,
        entry_point=entry_point,
        module=f"enginehouse_{entry_point}",
        distribution=f"enginehouse-{entry_point}",
        version="1.2.3",
    )


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.add([registered("zero", Zero), registered("fixed", Fixed)])
    return registry


def test_types_come_in_the_order_of_registration(registry: Registry) -> None:
    registry.add([registered("another", Zero, entry_point="more")])

    assert registry.types("scorer") == ("zero", "fixed", "another")
    assert registry.types("filter") == ()
    assert [entry.type for entry in registry.all()] == ["zero", "fixed", "another"]


def test_only_the_distribution_enginehouse_is_bundled() -> None:
    entry = registered("zero", Zero)

    assert not entry.bundled
    assert replace(entry, distribution="enginehouse").bundled


def test_parameters_are_decoded_into_the_config_of_the_class(registry: Registry) -> None:
    scorer = registry.create("scorer", "fixed", {"figure": 7})

    assert scorer.config == Fixed.Config(figure=7)


def test_without_config_the_class_is_called_with_nothing(registry: Registry) -> None:
    assert isinstance(registry.create("scorer", "zero"), Zero)
    assert isinstance(registry.create("scorer", "zero", {}), Zero)


def test_every_call_makes_a_new_instance(registry: Registry) -> None:
    assert registry.create("scorer", "zero") is not registry.create("scorer", "zero")


def test_an_unknown_type_names_the_key_and_what_was_meant(registry: Registry) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.create("scorer", "fixxed", key="routing.scorers.0.type")

    assert str(caught.value) == (
        "routing.scorers.0.type: unknown scorer 'fixxed' (did you mean \"fixed\"? known: zero, fixed)"
    )


def test_an_unknown_type_of_a_kind_without_types_says_so(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"unknown swapper 'group' \(no swapper is installed\)"):
        registry.create("swapper", "group")


def test_an_unknown_parameter_is_refused_although_the_struct_would_take_it(registry: Registry) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.create("scorer", "fixed", {"figure": 1, "figrue": 2}, key="plugins.fixed")

    assert str(caught.value) == (
        "plugins.fixed.figrue: unknown parameter 'figrue' of the scorer 'fixed' of plugin 'figures' "
        '(enginehouse-figures 1.2.3) (did you mean "figure"? known: figure, per_model)'
    )


def test_a_class_without_config_takes_no_parameters(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"unknown parameter 'size' .*it takes no parameters"):
        registry.create("scorer", "zero", {"size": 1})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"figure": "7"}, "plugins.fixed.figure: parameter 'figure' of the scorer 'fixed' .*Expected `int`, got `str`"),
        ({}, r"plugins.fixed.figure: is missing; the scorer 'fixed' .*needs it \(add 'figure' to \[plugins.fixed\]\)"),
        ({"figure": 7, "per_model": {"a": "b"}}, r"plugins.fixed.per_model\[...\]: .*figures 1.2.3"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_plugin(
    registry: Registry, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.create("scorer", "fixed", parameters, key="plugins.fixed")


def test_a_type_registered_twice_names_both_distributions(registry: Registry) -> None:
    with pytest.raises(PluginError) as caught:
        registry.add([registered("fresh", Zero, entry_point="more"), registered("fixed", Zero, entry_point="more")])

    assert str(caught.value) == (
        "plugin 'more' from enginehouse-more 1.2.3: the scorer 'fixed' is already registered by plugin 'figures' "
        "from enginehouse-figures 1.2.3"
    )
    assert registry.types("scorer") == ("zero", "fixed"), "nothing of the refused plugin may stay"


def test_one_type_may_name_things_of_two_kinds(registry: Registry) -> None:
    registry.add([registered("fixed", Zero, kind="filter")])

    assert registry.types("filter") == ("fixed",)


def test_a_class_that_cannot_be_made_is_blamed_on_its_plugin(registry: Registry) -> None:
    class Clumsy(Zero):
        def __init__(self) -> None:
            raise OSError("no such profile")

    registry.add([registered("clumsy", Clumsy)])

    with pytest.raises(PluginError, match=r"'figures' from enginehouse-figures 1.2.3: .*OSError: no such profile"):
        registry.create("scorer", "clumsy")


def test_an_error_of_ours_passes_through_the_making(registry: Registry) -> None:
    class Picky(Zero):
        def __init__(self) -> None:
            raise ConfigError("weights must sum to 100")

    registry.add([registered("picky", Picky)])

    with pytest.raises(ConfigError, match="weights must sum to 100"):
        registry.create("scorer", "picky")


def test_a_function_may_make_the_instance(registry: Registry) -> None:
    def make() -> Scorer:
        return Zero()

    registry.add([registered("made", make)])

    assert isinstance(registry.create("scorer", "made"), Zero)


def test_what_a_function_made_is_held_to_the_interface(registry: Registry) -> None:
    registry.add([registered("made", lambda: object())])

    with pytest.raises(PluginError, match="the scorer 'made' is not a scorer: the method 'score' is missing"):
        registry.create("scorer", "made")
