from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("50ms", 0.05), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("1d", 86400), ("0", 0), (" 5 s ", 5)],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["10", "", "s", "-1s", "1 year", "1S", "1e3s", "१s"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match='such as "500ms"'):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1KiB", 1024),
        ("1kB", 1000),
        ("24GiB", 24 * 1024**3),
        ("1.5 MB", 1_500_000),
        ("7", 7),
        ("7b", 7),
        ("2tib", 2 << 40),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1MB", "6GiBB", "1 PiB"])
def test_an_invalid_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match='such as "512MiB"'):
        parse_size(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0"), (0.0, "0"), (90, "90s"), (600, "10m"), (0.05, "50ms")])
def test_a_duration_is_written_in_its_largest_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(0, 1e12) | st.integers(0, 10**12))
def test_a_written_duration_reads_back_the_same(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**63))
def test_a_written_size_reads_back_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == size
