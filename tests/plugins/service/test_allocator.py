from __future__ import annotations

import asyncio
import ctypes
import platform
from types import SimpleNamespace
from typing import Any

import pytest

from enginehouse.runtime import SERVING
from enginehouse_service import allocator
from enginehouse_service.allocator import Allocator
from tests.support.waiting import within

VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[int]:
    """What is asked of glibc. Nothing is asked for by hand, and time passes quickly."""
    calls: asyncio.Queue[int] = asyncio.Queue()
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    library = SimpleNamespace(mallopt=lambda *_: 1, malloc_trim=calls.put_nowait)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(SERVING, "is_stopping", lambda: False)
    monkeypatch.setattr(allocator, "_EVERY_S", 0.001)
    return calls


def test_glibc_accepts_the_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert (allocator._fixed() is not None) == (platform.libc_ver()[0] == "glibc")


@pytest.mark.parametrize("name", VARIABLES)
async def test_thresholds_of_the_environment_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, trims: Any, name: str
) -> None:
    monkeypatch.setenv(name, "67108864")
    await Allocator().start()
    assert trims.empty()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
async def test_glibc_takes_the_thresholds_and_returns_memory_now_and_then(trims: asyncio.Queue[int]) -> None:
    working = asyncio.ensure_future(Allocator().start())
    for _ in range(3):
        assert await within(trims.get()) == 0
    working.cancel()
