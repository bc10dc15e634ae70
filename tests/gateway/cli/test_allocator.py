from __future__ import annotations

import platform

import pytest

from enginehouse.cli.allocator import return_freed_memory


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_thresholds_of_the_environment_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "67108864")
    assert not return_freed_memory()


def test_glibc_takes_the_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    assert return_freed_memory() == (platform.libc_ver()[0] == "glibc")
