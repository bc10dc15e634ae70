"""The folders for the prefix caches of launched engines, and what keeps caches there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from enginehouse.backends import CacheKeeper, ModelSettings
from enginehouse.drivers import EngineClient, KeepsCache, support_of
from enginehouse.engines.engine_cache import CacheFolders, EngineCache
from enginehouse.engines.host_context import ManagedReplica
from enginehouse_kit.drivers import OpenAICompatibleDriver
from tests.support.virtual_time import Run

CLIENT = cast(EngineClient, None)


class Driver(OpenAICompatibleDriver, KeepsCache):
    async def save_cache(self, engine: EngineClient) -> Mapping[str, int]:
        return {}

    async def restore_cache(self, engine: EngineClient, files: Sequence[str]) -> int:
        return 0


class Broken(CacheKeeper):
    """Fails, or hangs."""

    hangs = False

    async def prepare(self, launch: str, command: Sequence[str], files: Sequence[str]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        raise OSError("the disk is full")

    async def restore(self, driver: KeepsCache, engine: EngineClient) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        raise ValueError

    async def save(self, driver: KeepsCache, engine: EngineClient, within: float, most: int) -> None:
        await self.restore(driver, engine)


def managed(**settings: float) -> ManagedReplica:
    return ManagedReplica("a", "m", ModelSettings(**settings), support_of(Driver()))  # type: ignore[arg-type]


def test_what_no_backend_needs_any_more_is_removed(tmp_path: Path) -> None:
    folders = CacheFolders(tmp_path)
    for name in ("a", "tiny:1m", "b"):
        folders.folder_of(name).mkdir(parents=True)
        (folders.folder_of(name) / "slot-0").write_bytes(b"1")
    folders.remove_others(["a", "tiny:1m"])
    assert {each.name for each in folders.folder_of("a").parent.iterdir()} == {"a", "tiny%3A1m"}
    CacheFolders(tmp_path / "none").remove_others([])


async def test_what_nothing_keeps_track_of_is_not_left_to_another_engine(tmp_path: Path) -> None:
    folders = CacheFolders(tmp_path)
    cache = EngineCache(folders, managed())
    for keeper, left in ((None, False), (Broken(), True)):
        await cache.prepare("line", ["engine"], [])
        (cache.folder / "slot-0").write_bytes(b"1")
        folders.make_keeper = lambda backend, keeper=keeper: keeper  # type: ignore[misc]
        await cache.prepare("line", ["engine"], [])
        assert (cache.folder / "slot-0").exists() is left


@pytest.mark.parametrize("hangs", [False, True])
def test_a_keeper_that_fails_costs_a_cache_and_no_start_or_stop(
    in_virtual_time: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, hangs: bool
) -> None:
    folders, keeper = CacheFolders(tmp_path), Broken()
    keeper.hangs = hangs
    folders.make_keeper = lambda backend: keeper

    async def scenario() -> None:
        cache = EngineCache(folders, managed())
        await cache.prepare("line", ["engine"], [])
        await cache.restore(managed(), CLIENT)
        await cache.save(managed(), CLIENT)
        assert asyncio.get_running_loop().time() < 70

    in_virtual_time(scenario())
    assert caplog.text.count("The cache of a is not kept") == 3
