from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from enginehouse_kit.scalers import Scaler, ScaleView, WantedReplicas
from enginehouse_kit.testing import check_scaler


class Stays(Scaler):
    def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
        return [
            WantedReplicas(model=each.model, wanted=min(max(each.replicas, each.least), each.most), why="as it is")
            for each in view.models
        ]


def changed(**fields: object) -> type[Scaler]:
    class Broken(Stays):
        def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
            return [msgspec.structs.replace(each, **fields) for each in super().plan(view)]

    return Broken


class Forgets(Stays):
    def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
        return super().plan(view)[1:]


class Counts(Stays):
    def __init__(self) -> None:
        self.asked = 0

    def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
        self.asked += 1
        return [msgspec.structs.replace(each, why=str(self.asked)) for each in super().plan(view)]


class Grows(Stays):
    def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
        return [WantedReplicas(model=each.model, wanted=each.most, why="more") for each in view.models]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (changed(wanted=1.5), "wanted must be a whole number"),
        (changed(wanted=99), "wanted must be from 0 to 4"),
        (changed(why=""), "every decision must have a reason"),
        (Forgets, "plan must name each model of the view once"),
        (Counts, "the same view must get the same answer"),
        (Grows, "an idle model must not get more replicas"),
    ],
)
def test_a_scaler_that_breaks_a_rule_is_caught(broken: type[Scaler], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_scaler(broken)


def test_a_scaler_that_keeps_the_rules_passes() -> None:
    check_scaler(Stays)
