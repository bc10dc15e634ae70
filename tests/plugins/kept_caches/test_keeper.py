"""The prefix cache of an engine in files: what is saved, what is restored, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginehouse import RequestRecord
from enginehouse.backends import LaunchedBackend
from enginehouse.drivers import EngineClient, KeepsCache
from enginehouse.errors import UpstreamError
from enginehouse_kept_caches.service import CacheReports, KeptCache

CLIENT = cast(EngineClient, None)
MOST = 1000


class Engine(KeepsCache):
    """Writes ``slots``, each with its tokens and its bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slots: dict[str, tuple[int, int]] = {"slot-0": (10, 100)}
        self.restored: list[str] = []
        self.fails = False
        self.hangs = False

    async def save_cache(self, engine: EngineClient) -> Mapping[str, int]:
        if self.fails:
            raise UpstreamError("it has no slots")
        for name, (_, size) in self.slots.items():
            (self.folder / name).write_bytes(bytes(size))
            if self.hangs:
                await asyncio.Event().wait()
        return {name: tokens for name, (tokens, _) in self.slots.items()}

    async def restore_cache(self, engine: EngineClient, files: Sequence[str]) -> int:
        if self.fails:
            raise UpstreamError("no room")
        self.restored += files
        return sum(self.slots[file][0] for file in files)


class Kept:
    """A kept cache, its engine, and all that is reported of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a"
        self.engine = Engine(self.folder)
        self.noted: list[str] = []
        self.answers: list[RequestRecord] = []
        self.now = 0.0
        reports = CacheReports(lambda _, outcome: self.noted.append(outcome), lambda: self.answers, lambda: self.now)
        self.cache = KeptCache(LaunchedBackend("a", "m", self.folder), reports)

    async def launch(self, launch: str = "line", *files: Path) -> None:
        self.folder.mkdir(exist_ok=True)
        await self.cache.prepare(launch, ["/bin/sh"], [str(file) for file in files])
        await self.cache.restore(self.engine, CLIENT)

    async def stop(self, within: float = 5.0) -> None:
        await self.cache.save(self.engine, CLIENT, within, MOST)

    def answered(self, *, expected: int, had: int | None, sent: float = 1.0, backend: str = "a") -> None:
        """An answer to a prompt whose tokens routing estimates as half of what they are."""
        prefix = SimpleNamespace(tokens=expected // 2, cached=expected // 2)
        facts = {"backend": backend, "prefix": prefix, "tokens_in": expected, "tokens_cached": had, "sent": sent}
        record: Any = SimpleNamespace(**facts)
        self.answers.insert(0, record)

    @property
    def files(self) -> set[str]:
        return {file.name for file in self.folder.iterdir()}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


async def test_what_was_saved_is_restored(kept: Kept) -> None:
    await kept.launch()
    assert (kept.noted, kept.cache.tokens) == ([], 0)
    await kept.stop()
    assert kept.cache.tokens == 10
    await kept.launch()
    assert (kept.engine.restored, kept.noted) == (["slot-0"], ["saved", "restored"])


async def test_only_the_first_files_that_fit_are_kept(kept: Kept) -> None:
    kept.engine.slots = {"slot-2": (5, 600), "slot-0": (9, 700), "slot-1": (3, 400), "slot-3": (0, 0)}
    await kept.launch()
    await kept.stop()
    assert (kept.cache.tokens, kept.files) == (8, {"slot-2", "slot-1", "kept.json", "launched"})


@pytest.mark.parametrize("change", ["line", "file", "both"])
async def test_another_engine_gets_nothing(kept: Kept, tmp_path: Path, change: str) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"1")
    await kept.launch("line", model)
    await kept.stop()
    if change != "line":
        model.write_bytes(b"22")
    await kept.launch("line" if change == "file" else "other line", model)
    assert (kept.engine.restored, kept.cache.tokens, kept.files) == ([], 0, {"launched"})


async def test_a_model_file_that_changes_while_its_engine_runs_is_another_one(kept: Kept, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"1")
    await kept.launch("line", model)
    model.write_bytes(b"22")
    await kept.stop()
    await kept.launch("line", model)
    assert kept.engine.restored == []


async def test_an_engine_of_an_earlier_gateway_is_known(kept: Kept, tmp_path: Path) -> None:
    await kept.launch()
    later = Kept(tmp_path)
    await later.stop()
    await later.launch()
    assert later.engine.restored == ["slot-0"]


async def test_an_engine_that_nobody_prepared_keeps_nothing(kept: Kept) -> None:
    await kept.stop()
    await kept.cache.restore(kept.engine, CLIENT)
    assert (kept.noted, kept.folder.exists()) == ([], False)


async def test_what_takes_too_long_is_not_waited_for_and_is_never_half_a_cache(kept: Kept) -> None:
    await kept.launch()
    await kept.stop()
    kept.engine.hangs = True
    await kept.stop(within=0.01)
    assert (kept.noted, kept.cache.tokens) == (["saved", "late"], 0)
    await kept.launch()
    assert (kept.engine.restored, kept.files) == ([], {"launched"})


async def test_an_engine_that_refuses_gets_on_without(kept: Kept) -> None:
    await kept.launch()
    await kept.stop()
    kept.engine.fails = True
    await kept.launch()
    await kept.stop()
    assert (kept.noted, kept.cache.tokens) == (["saved", "refused", "failed"], 0)


async def test_what_an_answer_does_not_confirm_is_not_tried_again(kept: Kept) -> None:
    kept.engine.slots = {"slot-0": (5000, 100)}
    await kept.launch()
    await kept.stop()
    await kept.launch()
    kept.answered(expected=5000, had=0)
    kept.answered(expected=5000, had=4990)  # by then it has read the prompt again
    await kept.stop()
    await kept.launch()
    await kept.stop()
    assert kept.noted == ["saved", "restored", "unconfirmed"]
    await kept.launch("another build")
    await kept.stop()
    assert kept.noted[-1] == "saved"


async def test_what_answers_confirm_or_do_not_tell_stays(kept: Kept) -> None:
    kept.engine.slots = {"slot-0": (5000, 100), "slot-1": (400, 100)}
    await kept.launch()
    await kept.stop()
    kept.now = 10.0
    await kept.launch()
    kept.answered(expected=5000, had=0, sent=5.0)  # before it was restored
    kept.answered(expected=5000, had=0, sent=11.0, backend="b")
    kept.answered(expected=5000, had=None, sent=12.0)
    kept.answered(expected=100, had=0, sent=13.0)
    kept.answered(expected=6000, had=0, sent=13.0)  # it was dropped before the others were saved
    kept.answered(expected=5000, had=4000, sent=14.0)
    await kept.stop()
    assert kept.noted == ["saved", "restored", "saved"]


async def test_what_is_kept_is_known_as_routing_estimates_it(kept: Kept) -> None:
    await kept.launch()
    kept.answered(expected=5000, had=0)
    await kept.stop()
    assert (kept.cache.tokens, kept.cache.estimated) == (10, 5)
    await kept.launch("another build")
    assert (kept.cache.tokens, kept.cache.estimated) == (0, 0)
