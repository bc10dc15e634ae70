"""What callers have used is summed up by any fields, of any time."""

from __future__ import annotations

import pytest

from enginehouse import InvalidRequest, UsageRow
from enginehouse_operations.pages.usage import read_time, summed

NOW = 1_700_000_000.0


def test_sums_by_any_fields() -> None:
    rows = [
        UsageRow(hour, key, model, "", 1, 0, 10, 0, 5, 1.0, 0.5)
        for hour in (1_699_999_200, 1_700_092_800)
        for key in ("alice", "bob")
        for model in ("m", "n")
    ]
    by_key = summed(rows, ["key"])
    assert [(row["key"], row["model"], row["requests"], row["cost"]) for row in by_key["rows"]] == [
        ("alice", None, 4, 2.0),
        ("bob", None, 4, 2.0),
    ]
    assert by_key["total"]["tokens_in"] == 80
    by_day = summed(rows, ["day", "model"])
    assert [(row["day"], row["model"]) for row in by_day["rows"]] == [
        ("2023-11-14", "m"),
        ("2023-11-14", "n"),
        ("2023-11-16", "m"),
        ("2023-11-16", "n"),
    ]


@pytest.mark.parametrize(
    ("text", "moment"),
    [("7d", NOW - 7 * 86400), ("2023-11-14", 1_699_920_000.0), ("1699920000", 1_699_920_000.0), ("90m", NOW - 5400)],
)
def test_times_in_all_forms(text: str, moment: float) -> None:
    assert read_time(text, NOW) == moment


def test_no_time_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="write 7d"):
        read_time("yesterday", NOW)
