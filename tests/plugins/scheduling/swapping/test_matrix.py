from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse import ConfigError, Swapper
from enginehouse.errors import LoadFailed
from tests.support.swapping import host_of, installed_swapper

BASIC: dict[str, Any] = {
    "vars": {"g": "gemma", "q": "qwen", "m": "mistral", "v": "voxtral", "e": "reranker", "L": "llama70B"},
    "costs": {"L": 30, "v": 50},
    "sets": {"standard": "(g | q | m) & v", "full": "L"},
}
CHAIN: dict[str, Any] = {
    "vars": BASIC["vars"],
    "sets": {"llms": "g | q | m", "with_tts": "+llms & v", "mega": "+with_tts & e"},
}
MODELS = list(BASIC["vars"].values())


def matrix(parameters: dict[str, Any], models: Sequence[str] = "abcdefgt", **fields: Any) -> Swapper:
    """The matrix swapper of a host with these models."""
    return installed_swapper("matrix", host_of(*models, **fields), **parameters)


def test_a_set_says_what_may_run_together() -> None:
    it = matrix(BASIC, MODELS)

    assert it.eviction_for("gemma", ["voxtral"]) == []
    assert it.eviction_for("gemma", ["qwen", "voxtral"]) == ["qwen"]
    assert it.eviction_for("llama70B", ["voxtral"]) == ["voxtral"]


def test_the_explanation_has_the_set_and_the_cost() -> None:
    it = matrix(BASIC, MODELS)

    kept = it.explain("gemma", ["voxtral"])
    assert (kept.evict, kept.set, kept.set_name, kept.cost) == ([], ["voxtral", "gemma"], "standard", 0)
    lost = it.explain("llama70B", ["gemma", "voxtral"])
    assert (lost.evict, lost.set, lost.set_name, lost.cost) == (["gemma", "voxtral"], ["llama70B"], "full", 51)


def test_the_log_names_the_set_and_the_cost_of_each_eviction(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    it = matrix(BASIC, MODELS)

    it.on_swap_start("gemma", ["voxtral"])
    it.on_swap_start("llama70B", ["gemma", "voxtral"])
    assert caplog.messages == ["Swap of llama70B: set full, cost 51"]


def test_a_reference_is_the_other_set_in_its_place() -> None:
    plan = matrix(CHAIN, MODELS).explain("reranker", ["gemma", "voxtral"])

    assert (plan.evict, sorted(plan.set), plan.set_name) == ([], ["gemma", "reranker", "voxtral"], "mega")


def test_a_reference_may_come_before_its_set() -> None:
    it = matrix({"sets": {"both": "a & +later", "later": "b | c"}})

    assert it.explain("a", ["c"]).set_name == "both"
    assert it.eviction_for("a", ["b", "c"]) == ["c"]


def test_a_short_name_hides_the_model_of_that_name() -> None:
    it = matrix({"vars": {"a": "b"}, "sets": {"only": "a & c"}})

    assert it.eviction_for("b", ["c"]) == []
    assert it.eviction_for("a", ["c"]) == ["c"]


def test_short_and_full_names_may_be_mixed() -> None:
    it = matrix({"vars": {"g": "gemma"}, "sets": {"base": "g | qwen", "combo": "+base & voxtral"}}, MODELS)

    plan = it.explain("qwen", ["voxtral"])
    assert (plan.evict, plan.set_name) == ([], "combo")
    assert matrix({"vars": {"g": "gemma"}, "sets": {"one": "g & gemma"}}, MODELS).eviction_for("gemma", []) == []


def test_what_costs_most_to_evict_stays() -> None:
    it = matrix({"costs": {"b": 10}, "sets": {"a_with_c": "a & c", "a_with_b": "a & b"}})

    plan = it.explain("a", ["b", "c"])
    assert (plan.evict, plan.set_name, plan.cost) == (["c"], "a_with_b", 1)


def test_of_sets_that_cost_the_same_the_first_is_chosen() -> None:
    it = matrix({"costs": {"d": 2}, "sets": {"first": "a & d", "second": "a & b & c", "third": "a & b & c"}})

    assert it.explain("a", []).set_name == "first"
    plan = it.explain("a", ["b", "c", "d"])
    assert (plan.evict, plan.set_name, plan.cost) == (["b", "c"], "first", 2)


def test_within_a_set_fewer_evictions_and_then_what_is_written_first() -> None:
    fewer = matrix({"costs": {"d": 2}, "sets": {"only": "a & (d | (b & c))"}})
    first = matrix({"sets": {"only": "a & (c | b) & (d | e)"}})

    assert fewer.eviction_for("a", ["b", "c", "d"]) == ["d"]
    assert first.eviction_for("a", ["b", "c", "d", "e"]) == ["b", "e"]


def test_the_order_of_eviction_is_that_of_the_running() -> None:
    assert matrix({"sets": {"only": "a & b"}}).eviction_for("a", ["d", "b", "c"]) == ["d", "c"]


def test_a_running_target_stops_nothing() -> None:
    it = matrix({"sets": {"one": "a & b", "two": "a & c"}})

    odd = it.explain("a", ["b", "c", "a"])
    assert (odd.evict, odd.set, odd.set_name, odd.cost) == ([], ["b", "c", "a"], None, 0)
    assert it.explain("a", ["c", "a"]).set_name == "two"


def test_a_model_in_no_set_runs_alone() -> None:
    it = matrix({"costs": {"b": 4}, "sets": {"known": "a & b"}}, twins={"t-2": "t"})

    plan = it.explain("t", ["a", "b", "c"])
    assert (plan.evict, plan.set, plan.set_name, plan.cost) == (["a", "b", "c"], ["t"], None, 6)
    assert it.eviction_for("a", ["t", "b"]) == ["t"]
    assert it.eviction_for("t", ["b", "t-2"]) == ["b"]


def test_parts_that_share_models_are_chosen_together() -> None:
    it = matrix({"sets": {"pool": "(a | b | t) & (b | a | t) & (c | (d & a))"}})

    assert it.eviction_for("t", ["a", "b", "d"]) == []
    assert it.eviction_for("t", ["b", "c", "d"]) == ["d"]
    assert it.eviction_for("t", ["a", "b", "c", "d"]) == ["c"]


@pytest.mark.parametrize(
    ("sets", "running"),
    [
        ({"base": "a & b", "extended": "t & +base & b"}, ["a", "b"]),
        ({"preferred": "t & (a | (a & b))"}, ["a", "b"]),
    ],
)
def test_overlapping_choices_keep_all_they_can(sets: dict[str, str], running: list[str]) -> None:
    assert matrix({"sets": sets}).eviction_for("t", running) == []


def test_a_million_combinations() -> None:
    parts = [[f"model-{part}-{each}" for each in range(10)] for part in range(6)]
    large = " & ".join(["t", *(f"({' | '.join(part)})" for part in parts)])
    models = ["t", "outside", *(model for part in parts for model in part)]

    plan = matrix({"sets": {"large": large}}, models).explain("t", [*(part[9] for part in parts), "outside"])
    assert (plan.evict, plan.set_name, len(plan.set)) == (["outside"], "large", 7)


def test_more_models_than_a_machine_word_has_bits() -> None:
    models = [f"model-{number}" for number in range(70)]

    plan = matrix({"sets": {"wide": " & ".join(["t", *models])}}, ["t", "outside", *models]).explain(
        "t", [*models, "outside"]
    )
    assert (plan.evict, len(plan.set)) == (["outside"], 71)


def test_replicas_of_one_model_stay_and_go_together() -> None:
    it = matrix({"sets": {"one": "t & a", "two": "t & b"}}, twins={"a-2": "a", "t-2": "t"})

    plan = it.explain("t", ["a", "a-2", "b"])
    assert (plan.evict, plan.cost) == (["b"], 1)
    assert it.eviction_for("t-2", ["t", "b"]) == []


def test_a_set_that_keeps_the_pinned_is_chosen_at_any_cost() -> None:
    it = matrix({"costs": {"b": 100}, "sets": {"cheap": "t & (b | (b & c))", "dear": "t & a"}}, pinned=("a",))

    assert it.explain("t", ["a", "b", "c"]).set_name == "dear"
    assert it.explain("t", ["b", "c"]).set_name == "cheap"


@pytest.mark.parametrize("target", ["b", "t"])
def test_a_target_that_no_set_allows_beside_the_pinned_is_refused(target: str) -> None:
    it = matrix({"sets": {"one": "a & c", "two": "b"}}, pinned=("a",))

    with pytest.raises(LoadFailed, match=f"'{target}' cannot run beside 'a', pinned"):
        it.eviction_for(target, ["a", "c"])


def test_a_set_may_name_models_of_other_hosts() -> None:
    it = matrix({"sets": {"one": "a & z & b", "two": "z"}}, elsewhere=frozenset({"z"}))

    assert it.eviction_for("a", ["b", "c"]) == ["c"]


def test_a_matrix_needs_a_set() -> None:
    with pytest.raises(ConfigError, match=r"scheduling\.matrix\.sets: there is no set"):
        matrix({})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"vars": {"g": "gema"}}, "scheduling.matrix.vars.g: unknown model 'gema' (did you mean \"gemma\"?)"),
        ({"costs": {"gema": 2}}, "scheduling.matrix.costs.gema: unknown model or var 'gema' (did you mean \"gemma\"?)"),
        (
            {"vars": {"g": "gemma"}, "costs": {"g": 2, "gemma": 3}},
            "scheduling.matrix.costs.gemma: model 'gemma' has a cost already (keep one of them)",
        ),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        matrix({"sets": {"one": "qwen"}, **parameters}, MODELS)
    assert str(caught.value) == message


@pytest.mark.parametrize("cost", [0, -1])
def test_a_cost_is_one_or_more(cost: int) -> None:
    with pytest.raises(ConfigError, match=">= 1"):
        matrix({"costs": {"a": cost}, "sets": {"one": "a"}})


def test_a_replica_that_sleeps_as_measured_does_not_count() -> None:
    asleep = {"b": 0}
    it = installed_swapper("matrix", host_of("a", "b", "c", asleep=asleep), sets={"one": "a | b | c"})

    assert it.eviction_for("a", ["b", "c"]) == ["c"]
    assert it.eviction_for("b", ["b", "c"]) == ["c"], "it wakes"
    asleep.clear()
    assert it.eviction_for("a", ["b", "c"]) == ["b", "c"]
