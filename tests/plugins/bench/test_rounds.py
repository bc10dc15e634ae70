"""How figures of several rounds are put together."""

from __future__ import annotations

import pytest

from enginehouse_bench.rounds import ContenderFigures, Spread, Workload, report

CLIENTS = Workload("requests", 32, 1.0)
OURS = [ContenderFigures(200, 50, 90, 10), ContenderFigures(400, 60, 95, 20), ContenderFigures(300, 40, 80, 15)]
THEIRS = [ContenderFigures(100, 40, 60, 20), ContenderFigures(100, 10, 95, 20), ContenderFigures(200, 20, 70, 30)]


def test_figures_are_medians() -> None:
    assert report(CLIENTS, {"ours": OURS, "theirs": THEIRS}).figures == {
        "ours": ContenderFigures(300, 50, 90, 15),
        "theirs": ContenderFigures(100, 20, 70, 20),
    }


def test_the_first_contender_is_compared_round_by_round() -> None:
    (against,) = report(CLIENTS, {"ours": OURS, "theirs": THEIRS}).against.items()
    name, compared = against
    assert name == "theirs"
    assert compared.per_s == Spread(2, 1.5, 4)
    assert compared.cpu_us == Spread(0.5, 0.5, 1)
    assert compared.added_p50_us == Spread(20, 10, 50)
    assert compared.added_p99_us == Spread(10, 0, 30)


@pytest.mark.parametrize("unknown", [None, 0.0])
def test_processor_time_that_is_unknown_is_not_compared(unknown: float | None) -> None:
    engine = [ContenderFigures(100, 40, 60, unknown)] * 3
    found = report(CLIENTS, {"ours": OURS, "engine": engine})
    assert found.against["engine"].cpu_us is None
    assert found.figures["engine"].cpu_us == unknown
