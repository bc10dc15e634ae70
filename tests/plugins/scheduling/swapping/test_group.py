from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from enginehouse import ConfigError, Swapper
from tests.support.swapping import host_of, installed_swapper


def group(
    groups: dict[str, dict[str, Any]], *, pinned: tuple[str, ...] = (), twins: Mapping[str, str] | None = None
) -> Swapper:
    """The group swapper of a host with the models a to f."""
    return installed_swapper("group", host_of(*"abcdef", pinned=pinned, twins=twins), groups=groups)


def test_models_in_no_group_change_places() -> None:
    assert group({}).eviction_for("a", ["b", "c"]) == ["b", "c"]


@pytest.mark.parametrize(
    ("swap", "exclusive", "evicted"),
    [(True, True, "bc"), (True, False, "b"), (False, True, "c"), (False, False, "")],
)
def test_swap_is_for_the_own_group_and_exclusive_for_the_others_unless_these_persist(
    swap: bool, exclusive: bool, evicted: str
) -> None:
    it = group(
        {
            "own": {"members": ["a", "b"], "swap": swap, "exclusive": exclusive},
            "other": {"members": ["c"]},
            "lasting": {"members": ["d"], "persistent": True},
        }
    )

    assert it.eviction_for("a", ["b", "c", "d"]) == list(evicted)


def test_only_the_targets_group_says_whether_others_stop() -> None:
    it = group({"one": {"members": ["a"]}, "two": {"members": ["b"], "exclusive": False}})

    assert it.eviction_for("b", ["a"]) == []
    assert it.eviction_for("a", ["b"]) == ["b"]


def test_persistent_does_not_protect_within_the_group() -> None:
    it = group({"one": {"members": ["a", "b"], "persistent": True}})

    assert it.eviction_for("a", ["b"]) == ["b"]


def test_models_in_no_group_are_one_group_beside_the_others() -> None:
    it = group({"one": {"members": ["a"]}, "lasting": {"members": ["b"], "persistent": True}})

    assert it.eviction_for("c", ["a", "b", "d"]) == ["a", "d"]
    assert it.eviction_for("a", ["b", "c", "d"]) == ["c", "d"]


def test_a_running_target_stops_what_may_not_run_beside_it() -> None:
    it = group({"one": {"members": ["a"]}, "two": {"members": ["b"], "exclusive": False}})

    assert it.eviction_for("a", ["b", "a"]) == ["b"]


def test_the_order_is_that_of_the_running() -> None:
    assert group({}).eviction_for("a", ["d", "b", "c"]) == ["d", "b", "c"]


def test_a_pinned_model_stands_outside_of_all_groups() -> None:
    it = group({"one": {"members": ["a", "b"]}}, pinned=("a",))

    assert it.eviction_for("b", ["a", "c"]) == ["c"]
    assert it.eviction_for("c", ["a"]) == []
    assert it.eviction_for("a", ["b", "c"]) == []


def test_replicas_of_one_model_do_not_stop_each_other() -> None:
    it = group({}, twins={"a-2": "a"})

    assert it.eviction_for("a-2", ["a", "b"]) == ["b"]
    assert it.eviction_for("b", ["a", "a-2"]) == ["a", "a-2"]


def test_the_explanation_names_the_group() -> None:
    it = group({"one": {"members": ["a", "b"], "exclusive": False}})

    plan = it.explain("a", ["c", "b"])
    assert (plan.evict, plan.set, plan.set_name, plan.cost) == (["b"], ["c", "a"], "one", None)
    assert it.explain("c", []).set_name is None


def test_a_model_of_two_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match="'b' is a member of 'one' already") as caught:
        group({"one": {"members": ["a", "b"]}, "two": {"members": ["b"]}})
    assert caught.value.key == "scheduling.groups.two.members"


def test_a_model_listed_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'a' is a member of 'one' already"):
        group({"one": {"members": ["a", "a"]}})


def test_an_unknown_member_is_refused_with_what_may_have_been_meant() -> None:
    with pytest.raises(ConfigError) as caught:
        installed_swapper("group", host_of("llama", "qwen"), groups={"one": {"members": ["lama"]}})
    assert str(caught.value) == "scheduling.groups.one.members: unknown model 'lama' (did you mean \"llama\"?)"


def test_a_member_may_run_on_another_host() -> None:
    it = installed_swapper("group", host_of("a", elsewhere=frozenset({"z"})), groups={"one": {"members": ["a", "z"]}})

    assert it.eviction_for("a", []) == []


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="exclusiv"):
        group({"one": {"members": ["a"], "exclusiv": True}})


def test_of_what_lasts_only_the_own_group_can_be_spared() -> None:
    it = group(
        {
            "own": {"members": ["a", "b"], "swap": False, "persistent": True},
            "other": {"members": ["c"]},
            "lasting": {"members": ["d"], "persistent": True},
        }
    )

    assert it.dispensable("a", ["b", "c", "d", "e"]) == ["b", "c", "e"]
    assert it.dispensable("e", ["b", "c", "d", "f"]) == ["c", "f"]


def test_a_replica_that_sleeps_as_measured_may_stay() -> None:
    asleep = {"b": 0}
    it = installed_swapper("group", host_of("a", "b", "c", asleep=asleep))

    assert it.eviction_for("a", ["b", "c"]) == ["c"]
    asleep.clear()
    assert it.eviction_for("a", ["b", "c"]) == ["b", "c"]
