from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from enginehouse import PluginError, Swapper
from enginehouse.app.build import build_swapper
from enginehouse.config.scheduling import SchedulingSettings
from enginehouse.config.schema import Config, ModelSettings
from enginehouse.errors import LoadFailed, PluginFailed
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.scheduling.guarded_swapper import GuardedSwapper
from enginehouse.scheduling.scheduling_rules import facts_of_hosts
from enginehouse.tickets import HostedReplica, HostFacts, SwapPlan
from tests.support.plugins import Install

MODELS = ("a", "b", "llama", "pinned")


class Answers(Swapper):
    """Answers every question with ``answer``, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return cast(Sequence[str], self._given())

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return cast(Sequence[str], self._given())

    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        self._given()

    def _given(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Plans(Answers):
    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        return cast(SwapPlan, self._given())


def guarded(swapper: Swapper) -> GuardedSwapper:
    replicas = [HostedReplica(replica=f"{model}@1", model=model, pin=model == "pinned") for model in MODELS]
    replicas.append(HostedReplica(replica="a@2", model="a"))
    guard = GuardedSwapper(swapper, type="greedy", plugin="acme")
    guard.prepare(HostFacts(name="local", replicas={each.replica: each for each in replicas}))
    return guard


Ask = Callable[[GuardedSwapper], object]
RUNNING = ["b@1", "llama@1", "pinned@1"]
QUESTIONS: dict[str, Ask] = {
    "eviction_for": lambda swapper: swapper.eviction_for("a@1", RUNNING),
    "dispensable": lambda swapper: swapper.dispensable("a@1", RUNNING),
    "on_swap_start": lambda swapper: swapper.on_swap_start("a@1", RUNNING),
    "explain": lambda swapper: swapper.explain("a@1", RUNNING),
}


def test_a_right_answer_passes() -> None:
    swapper = guarded(Answers(["b@1"]))
    assert list(swapper.eviction_for("a@1", RUNNING)) == ["b@1"]
    assert list(swapper.dispensable("a@1", RUNNING)) == ["b@1"]
    assert swapper.explain("a@1", RUNNING).set == ["llama@1", "pinned@1", "a@1"]


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_an_exception_names_kind_type_and_plugin(ask: Ask) -> None:
    with pytest.raises(PluginFailed, match="swapper 'greedy' of plugin 'acme' failed with KeyError") as failure:
        ask(guarded(Answers(KeyError("secret"))))
    assert failure.value.details == {"kind": "swapper", "type": "greedy", "plugin": "acme"}
    assert "secret" not in str(failure.value)
    assert isinstance(failure.value.__cause__, KeyError)


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_an_error_for_the_client_passes(ask: Ask) -> None:
    with pytest.raises(LoadFailed, match="too large"):
        ask(guarded(Answers(LoadFailed("too large"))))


@pytest.mark.parametrize("answer", [None, 1, "b@1", "", [1], ["ghost@1"], ["a@2"]])
@pytest.mark.parametrize("question", ["eviction_for", "dispensable"])
def test_an_answer_may_only_name_running_replicas(question: str, answer: object) -> None:
    with pytest.raises(PluginFailed, match="swapper 'greedy'"):
        QUESTIONS[question](guarded(Answers(answer)))


def test_the_target_is_not_evicted_although_it_is_half_loaded() -> None:
    with pytest.raises(PluginFailed, match="eviction_for"):
        guarded(Answers(["a@1"])).eviction_for("a@1", ["a@1", "b@1"])


@pytest.mark.parametrize(
    "plan",
    [
        ["b@1"],
        SwapPlan(target="a@1", evict=["ghost@1"], set=["a@1"]),
        SwapPlan(target="a@1", evict=[], set=["ghost@1"]),
    ],
)
def test_an_explanation_is_a_plan_of_known_replicas(plan: object) -> None:
    with pytest.raises(PluginFailed, match="explain"):
        guarded(Plans(plan)).explain("a@1", RUNNING)


@pytest.mark.parametrize("question", ["eviction_for", "explain"])
def test_a_pinned_replica_is_not_evicted(question: str) -> None:
    with pytest.raises(LoadFailed) as refusal:
        QUESTIONS[question](guarded(Answers(["b@1", "pinned@1"])))
    assert str(refusal.value) == "Model 'a' cannot be loaded: it needs 'pinned' evicted, which is pinned"
    assert refusal.value.details == {"model": "a", "pinned": "pinned"}


def test_pinned_replicas_and_those_of_the_targets_model_are_not_dispensable() -> None:
    running = ["a@2", *RUNNING]
    assert guarded(Answers(running)).dispensable("a@1", running) == ["b@1", "llama@1"]


GREEDY = """
class Greedy(Swapper):
    def prepare(self, host):
        if host.name == "odd":
            raise KeyError("odd")
    def eviction_for(self, target, running):
        return ["nonsense"]

@hookimpl
def register_swappers(register):
    register("greedy", Greedy)
"""


def test_the_gateway_guards_what_a_plugin_registers(install: Install) -> None:
    install("acme", GREEDY)
    config = Config(
        models={"a": ModelSettings(driver="sim"), "b": ModelSettings(driver="sim", host="odd")},
        scheduling=SchedulingSettings(swapper="greedy"),
    )
    registry = load_plugins(config.plugins).registry
    host = facts_of_hosts(config)("local")
    with pytest.raises(PluginFailed, match="swapper 'greedy' of plugin 'acme' returned \\['nonsense'\\]"):
        build_swapper(config, registry, host).explain("a@a", [])
    with pytest.raises(PluginError, match=r"plugin 'acme'.*the swapper 'greedy' cannot be prepared: KeyError: 'odd'"):
        build_swapper(config, registry, facts_of_hosts(config)("odd"))
