from __future__ import annotations

import platform

import pytest

from enginehouse.processes.accepting import Allocator


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_thresholds_of_the_environment_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "67108864")
    allocator = Allocator()
    assert not allocator.start()
    assert not any(allocator.tick() for _ in range(10))


def test_glibc_takes_the_thresholds_and_returns_memory_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    allocator, is_glibc = Allocator(), platform.libc_ver()[0] == "glibc"
    assert allocator.start() == is_glibc
    assert [allocator.tick() for _ in range(10)] == 2 * [False, False, False, False, is_glibc]
