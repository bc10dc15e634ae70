from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse.errors import LoadFailed
from tests.support.swapping import GIB, host_of, installed_swapper


def test_without_a_budget_nothing_is_evicted() -> None:
    it = installed_swapper("memory", host_of("a", "b", sizes={"a": 1000, "b": 1000}))

    assert it.eviction_for("a", ["b"]) == []


def test_what_fits_stays() -> None:
    it = installed_swapper("memory", host_of("a", "b", "c", memory=24, sizes={"a": 8, "b": 8, "c": 8}))

    assert it.eviction_for("a", ["b", "c"]) == []


def test_the_least_recently_used_goes_first() -> None:
    it = installed_swapper("memory", host_of("a", "b", "c", memory=20, sizes={"a": 8, "b": 8, "c": 8}))

    assert it.eviction_for("a", ["b", "c"]) == ["b"]
    assert it.eviction_for("a", ["c", "b"]) == ["c"]


def test_what_turns_out_to_fit_beside_the_target_stays() -> None:
    it = installed_swapper(
        "memory", host_of("a", "small", "large", memory=24, sizes={"a": 20, "small": 2, "large": 20})
    )

    assert it.eviction_for("a", ["small", "large"]) == ["large"]


def test_the_more_recently_used_is_the_first_to_stay() -> None:
    sizes = {"a": 20, "old": 3, "new": 3, "large": 18}
    it = installed_swapper("memory", host_of(*sizes, memory=24, sizes=sizes))

    assert it.eviction_for("a", ["old", "new", "large"]) == ["old", "large"]


def test_a_running_target_needs_no_room() -> None:
    it = installed_swapper("memory", host_of("a", "b", memory=10, sizes={"a": 8, "b": 8}))

    assert it.eviction_for("a", ["b", "a"]) == []


def test_a_pinned_replica_is_never_evicted() -> None:
    it = installed_swapper("memory", host_of("a", "b", "c", memory=20, sizes={"a": 8, "b": 8, "c": 8}, pinned=("b",)))

    assert it.eviction_for("a", ["b", "c"]) == ["c"]


def test_what_files_suggest_counts_until_it_is_measured() -> None:
    measured: dict[str, int] = {}
    host = host_of("a", "b", memory=20, sizes={"a": 8}, measured=measured, estimated={"b": 15})
    it = installed_swapper("memory", host)

    assert it.eviction_for("a", ["b"]) == ["b"]
    measured["b"] = 10 * GIB
    assert it.eviction_for("a", ["b"]) == []


def test_what_files_suggest_never_refuses_a_target() -> None:
    host = host_of("a", "b", "c", memory=20, sizes={"b": 1, "c": 1}, pinned=("c",), estimated={"a": 30})

    assert installed_swapper("memory", host).eviction_for("a", ["b", "c"]) == ["b"]


def test_a_target_larger_than_the_host_is_refused_with_the_numbers() -> None:
    it = installed_swapper("memory", host_of("big", "b", memory=24, sizes={"big": 30, "b": 1}))

    with pytest.raises(LoadFailed) as caught:
        it.eviction_for("big", ["b"])
    assert str(caught.value) == (
        "Model 'big' needs 30 GiB, host 'local' has 24 GiB (raise hosts.local.memory, or correct the model's memory)"
    )


def test_a_target_that_pinned_replicas_leave_no_room_for_is_refused() -> None:
    sizes = {"big": 20, "b": 6.5, "c": 0.25}
    it = installed_swapper("memory", host_of(*sizes, memory=24, sizes=sizes, pinned=("b", "c")))

    assert it.eviction_for("big", ["c"]) == []
    with pytest.raises(LoadFailed) as caught:
        it.eviction_for("big", ["b", "c"])
    assert str(caught.value) == (
        "Model 'big' needs 20 GiB, host 'local' has 24 GiB, of which pinned models hold: 'b' 6.5 GiB, 'c' 256 MiB "
        "(unpin or unload one, or raise hosts.local.memory)"
    )


def test_a_target_of_unknown_size_runs_beside_pinned_replicas_only() -> None:
    it = installed_swapper("memory", host_of("a", "b", "c", memory=24, sizes={"b": 1, "c": 1}, pinned=("c",)))

    assert it.eviction_for("a", ["b", "c"]) == ["b"]


def test_what_runs_in_unknown_size_has_to_go() -> None:
    it = installed_swapper("memory", host_of("a", "b", "c", memory=24, sizes={"a": 1, "c": 1}))

    assert it.eviction_for("a", ["b", "c"]) == ["b"]


def test_sizes_are_learned_while_it_works() -> None:
    measured: dict[str, int] = {}
    it = installed_swapper("memory", host_of("a", "b", memory=24, measured=measured))

    assert it.eviction_for("a", ["b"]) == ["b"]
    measured |= {"a": 8 * GIB, "b": 8 * GIB}
    assert it.eviction_for("a", ["b"]) == []


def test_a_declared_size_counts_more_than_a_measured_one() -> None:
    it = installed_swapper("memory", host_of("a", "b", memory=24, sizes={"a": 20, "b": 20}, measured={"a": 1, "b": 1}))

    assert it.eviction_for("a", ["b"]) == ["b"]


def test_the_explanation_has_no_set_and_no_cost() -> None:
    plan = installed_swapper("memory", host_of("a", "b", "c", memory=2, sizes={"a": 1, "b": 1, "c": 1})).explain(
        "a", ["b", "c"]
    )

    assert (plan.evict, plan.set, plan.set_name, plan.cost) == (["b"], ["c", "a"], None, None)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=7), st.integers(1, 9), st.integers(9, 40))
def test_the_target_fits_and_none_is_evicted_for_nothing(
    others: list[tuple[int, bool]], needed: int, budget: int
) -> None:
    running = [f"m{number}" for number in range(len(others))]
    sizes = {"t": needed} | {name: size for name, (size, _) in zip(running, others, strict=True)}
    pinned = tuple(name for name, (_, pin) in zip(running, others, strict=True) if pin)
    it = installed_swapper("memory", host_of(*sizes, memory=budget, sizes=sizes, pinned=pinned))

    if needed + sum(sizes[name] for name in pinned) > budget:
        with pytest.raises(LoadFailed):
            it.eviction_for("t", running)
        return
    evict = it.eviction_for("t", running)
    used = needed + sum(sizes[name] for name in running if name not in evict)
    assert used <= budget
    assert not set(evict) & set(pinned)
    assert all(used + sizes[name] > budget for name in evict)


def test_a_sleeping_replica_counts_with_what_it_has_kept() -> None:
    asleep = {"b": 2 * GIB}
    it = installed_swapper("memory", host_of("a", "b", memory=10, sizes={"a": 8, "b": 8}, asleep=asleep))

    assert it.eviction_for("a", ["b"]) == []
    asleep["b"] = 3 * GIB
    assert it.eviction_for("a", ["b"]) == ["b"]


def test_a_replica_that_wakes_needs_room() -> None:
    asleep = {"b": 1 * GIB}
    it = installed_swapper("memory", host_of("a", "b", memory=10, sizes={"a": 8, "b": 8}, asleep=asleep))

    assert it.eviction_for("b", ["b", "a"]) == ["a"]
