from __future__ import annotations

import platform
from collections.abc import Callable

import pytest

from enginehouse.cli.allocator import return_freed_memory


class Later:
    """Notes what is to be called later."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append(call)


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_thresholds_of_the_environment_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "67108864")
    later = Later()
    assert not return_freed_memory(later)
    assert later.calls == []


def test_glibc_takes_the_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    later, is_glibc = Later(), platform.libc_ver()[0] == "glibc"
    assert return_freed_memory(later) == is_glibc
    for number in range(1, 3):
        assert len(later.calls) == number * is_glibc
        for trim in later.calls[-1:]:
            trim()  # and again later
