from __future__ import annotations

import pytest

from enginehouse import ConfigError
from enginehouse_kit.testing import (
    candidate,
    check_filter,
    check_scorer,
    check_strategy,
    create,
    installed_plugins,
    requirements,
)


def test_the_plugin_is_found() -> None:
    types = [(row.kind, row.type) for row in installed_plugins() if row.name == "nightshift"]

    assert types == [("filter", "backend_names"), ("scorer", "backend_preference"), ("strategy", "packed")]


def test_all_types_pass_the_conformance_checks() -> None:
    check_filter(lambda: create("filter", "backend_names", {"keep": ["gpu-*", "odd-1?"], "drop": ["*7"]}))
    check_scorer(lambda: create("scorer", "backend_preference", {"prefer": ["odd-*", "gpu-1*"]}))
    check_strategy(lambda: create("strategy", "packed", {"limit": 3}))


def test_drop_wins_over_keep() -> None:
    names = create("filter", "backend_names", {"keep": ["gpu-*"], "drop": ["gpu-2"]})
    candidates = [candidate("gpu-1"), candidate("gpu-2"), candidate("cpu-1")]

    assert names.keep(requirements(), candidates) == candidates[:1]
    assert names.why(requirements(), candidates[1]) == "backend 'gpu-2' matches 'gpu-2' in drop"
    assert names.why(requirements(), candidates[2]) == "backend 'cpu-1' matches nothing in keep"


def test_earlier_patterns_score_higher() -> None:
    preference = create("scorer", "backend_preference", {"prefer": ["night-*", "*-big"]})
    candidates = [candidate("day-big"), candidate("night-big"), candidate("day-small")]

    assert list(preference.score(requirements(), candidates)) == [50, 100, 0]


def test_prefer_is_required() -> None:
    with pytest.raises(ConfigError, match="prefer"):
        create("scorer", "backend_preference")


@pytest.mark.parametrize(("pending", "picked"), [((0, 2, 1), 1), ((0, 3, 1), 2), ((5, 3, 4), 1), ((0, 0, 0), 0)])
def test_one_backend_is_filled_before_the_next(pending: tuple[int, ...], picked: int) -> None:
    packed = create("strategy", "packed", {"limit": 3})
    candidates = [candidate(f"gpu-{place}", pending=count) for place, count in enumerate(pending)]

    assert packed.pick(requirements(), candidates) is candidates[picked]
    assert [verdict.parts["pending"] for verdict in packed.explain(requirements(), candidates)] == list(pending)
