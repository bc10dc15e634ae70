"""The symbolic solver against writing every combination out."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.swapping import host_of, installed_swapper

Tree = Any
"""A model's name, or ``("&" | "|", parts)``."""

MODELS = "abcdefg"
trees = st.recursive(
    st.sampled_from(MODELS),
    lambda below: st.tuples(st.sampled_from("&|"), st.lists(below, min_size=2, max_size=3)),
    max_leaves=9,
)


def written(tree: Tree) -> str:
    return tree if isinstance(tree, str) else "(" + f" {tree[0]} ".join(written(part) for part in tree[1]) + ")"


def expanded(tree: Tree) -> list[frozenset[str]]:
    if isinstance(tree, str):
        return [frozenset(tree)]
    parts = [expanded(part) for part in tree[1]]
    if tree[0] == "|":
        return [each for part in parts for each in part]
    return [frozenset().union(*chosen) for chosen in product(*parts)]


@settings(max_examples=150)
@given(
    st.lists(trees, min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(MODELS), st.integers(1, 4)),
    st.lists(st.sampled_from(MODELS), unique=True),
)
def test_the_choice_is_the_best_of_all_combinations(
    chosen: list[Tree], costs: dict[str, int], order: list[str]
) -> None:
    sets = {f"set{number}": written(tree) for number, tree in enumerate(chosen)}
    it = installed_swapper("matrix", host_of(*MODELS), sets=sets, costs=costs)
    target, running = (order[0], order[1:]) if order else ("a", [])

    def price(kept: frozenset[str]) -> tuple[int, int]:
        lost = [model for model in running if model not in kept]
        return sum(costs.get(model, 1) for model in lost), len(lost)

    allowed = {
        name: [each for each in expanded(tree) if target in each] for name, tree in zip(sets, chosen, strict=True)
    }
    plan = it.explain(target, running)
    if not any(allowed.values()):
        assert (plan.evict, plan.set, plan.set_name) == (running, [target], None)
        return
    prices = {name: min(map(price, combinations)) for name, combinations in allowed.items() if combinations}
    lowest = min(cost for cost, _ in prices.values())
    first = next(name for name, (cost, _) in prices.items() if cost == lowest)
    assert (plan.set_name, plan.cost, len(plan.evict)) == (first, *prices[first])
    assert any(set(plan.set) <= each for each in allowed[first])
    assert plan.set == [*(model for model in running if model not in plan.evict), target]
    assert it.eviction_for(target, running) == plan.evict
