from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse import Swapper
from enginehouse.errors import LoadFailed
from enginehouse.tickets import SwapPlan
from enginehouse_kit.testing import check_swapper, create


@pytest.mark.parametrize(
    ("type", "parameters"),
    [
        ("group", {}),
        ("group", {"groups": {"one": {"members": ["a", "b"], "swap": False}, "two": {"members": ["c"]}}}),
        ("matrix", {"sets": {"one": "a & (b | c)", "two": "b & d"}}),
        ("memory", {}),
    ],
)
def test_a_bundled_swapper_keeps_the_rules_of_its_interface(type: str, parameters: dict[str, Any]) -> None:
    check_swapper(lambda: create("swapper", type, parameters))


class Everything(Swapper):
    """Evicts all that runs besides the target and, as the check calls it, the only one that is ever pinned."""

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return [each for each in running if each != target and not each.startswith("a@")]


class WithTheTarget(Everything):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return [each for each in running if not each.startswith("a@")]


class WithThePinned(Everything):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return [each for each in running if each != target]


class WhatDoesNotRun(Everything):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return [*super().eviction_for(target, running), "other@other"]


class Twice(Everything):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return [*super().eviction_for(target, running), *super().eviction_for(target, running)]


class Lazy(Everything):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return iter(running)  # type: ignore[return-value]


class Remembers(Everything):
    asked = 0

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        self.asked += 1
        return super().eviction_for(target, running)[: self.asked % 2]


class Sorts(Everything):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        if isinstance(running, list):
            running.sort()
        return []


class SaysElse(Everything):
    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        return SwapPlan(target=target, evict=[], set=[*running, target])


class SaysTooLittle(Everything):
    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        return SwapPlan(target=target, evict=list(self.eviction_for(target, running)), set=[])


class RefusesToSay(Everything):
    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        raise LoadFailed("no")


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (WithTheTarget, "the target '.*' must not be evicted"),
        (WithThePinned, "pinned replicas must not be evicted"),
        (WhatDoesNotRun, "only running replicas"),
        (Twice, "must be evicted once"),
        (Lazy, "eviction_for must return a sequence"),
        (Remembers, "the same question must get the same answer"),
        (Sorts, "must not be changed"),
        (SaysElse, "explain must agree"),
        (SaysTooLittle, "what runs afterwards"),
        (RefusesToSay, "explain must not refuse"),
    ],
)
def test_a_swapper_that_breaks_a_rule_is_caught(broken: type[Swapper], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_swapper(broken)


def test_a_swapper_that_keeps_the_rules_passes() -> None:
    check_swapper(Everything)


def test_a_swapper_that_names_models_is_checked_with_those() -> None:
    check_swapper(lambda: create("swapper", "matrix", {"sets": {"one": "x & y"}}), models=["x", "y"])
