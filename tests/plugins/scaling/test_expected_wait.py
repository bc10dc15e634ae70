from __future__ import annotations

from typing import Any

import pytest

from enginehouse_kit.scalers import ModelLoad, ScaleView
from enginehouse_kit.testing import check_scaler, create
from enginehouse_scaling.decide import ExpectedWait


def test_it_keeps_the_rules_of_a_scaler() -> None:
    check_scaler(lambda: create("scaler", "expected_wait"))


IDLE: dict[str, Any] = {"replicas": 2, "ready": 2, "spare_s": 299.0}
CROWDED: dict[str, Any] = {"replicas": 1, "ready": 1, "serving": 4, "waiting": 9, "expected_wait_s": 3.0}


@pytest.mark.parametrize(
    ("load", "wanted", "why"),
    [
        (CROWDED, 2, "requests wait 3.0 s, more than 2s"),
        ({**CROWDED, "expected_wait_s": 2.0}, 1, "requests wait 2.0 s, no more than 2s"),
        ({**CROWDED, "scale_up_wait": 5.0}, 1, "requests wait 3.0 s, no more than 5s"),
        ({**CROWDED, "most": 1}, 1, "requests wait 3.0 s, and 1 replicas are the most"),
        ({**CROWDED, "replicas": 2}, 2, "requests wait 1.5 s when 1 more can serve, no more than 2s"),
        (
            {**CROWDED, "replicas": 2, "slots": 9, "expected_wait_s": 9.0},
            2,
            "requests wait 4.5 s when 1 more can serve",
        ),
        (
            {**CROWDED, "replicas": 2, "slots": 8, "expected_wait_s": 9.0},
            3,
            "requests wait 4.5 s when 1 more can serve",
        ),
        ({"replicas": 1, "waiting": 1, "expected_wait_s": 9.0}, 1, "requests wait 9.0 s when 1 more can serve"),
        ({"replicas": 1, "waiting": 2, "expected_wait_s": 9.0}, 2, "requests wait 9.0 s when 1 more can serve"),
        ({"replicas": 0, "waiting": 1}, 1, "a request waits, and no replica runs"),
        ({"replicas": 0}, 0, "no request waits, 0 are served"),
        (IDLE, 2, "no request waits"),
        ({**IDLE, "spare_s": 300.0}, 1, "one replica was not needed for 300 s"),
        ({**IDLE, "spare_s": 300.0, "ready": 1}, 2, "no request waits"),
        ({**IDLE, "spare_s": 300.0, "least": 2}, 2, "no request waits"),
        ({"replicas": 0, "least": 2}, 2, "2 replicas are the fewest"),
    ],
)
def test_a_decision_and_its_reason(load: dict[str, Any], wanted: int, why: str) -> None:
    view = ScaleView(now=0.0, models=(ModelLoad(**{"model": "m", "most": 4, **load}),))
    [decided] = ExpectedWait().plan(view)
    assert decided.wanted == wanted
    assert decided.why.startswith(why)
