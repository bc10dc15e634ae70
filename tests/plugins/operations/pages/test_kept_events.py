"""The events that pages show after a reload and a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse import Health, ReplicaState
from enginehouse.pages import EndedRequest
from enginehouse.records import StreamGap
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.tickets import Phase
from enginehouse_kit.rescheduling import Migrated, Migration
from enginehouse_kit.testing import request_record
from enginehouse_operations.pages.events import KeptEvents
from tests.plugins.operations.pages.test_history import attempt
from tests.support.page_facts import page_facts


class Run:
    """A run of a gateway whose state lies in ``folder``."""

    def __init__(self, folder: Path, error: str | None = None) -> None:
        self.now = 100.0
        self.error = error
        self.ended: list[EndedRequest] = []
        self.observers = Observers()
        facts = page_facts(
            epoch=lambda: self.now,
            folder=lambda: folder,
            observe=self.observers.add,
            ended=lambda: iter(self.ended[::-1]),
            ended_count=lambda: len(self.ended),
        )
        self.kept = KeptEvents(facts, self)
        self.file = folder / "events.jsonl"

    def snapshot(self) -> Mapping[str, Any]:
        health = Health.UNHEALTHY if self.error else Health.HEALTHY
        return {"backends": [{"backend": "a", "health": health, "error": self.error}]}

    def last_error(self, backend: str) -> str | None:
        return self.error

    def waiting_for(self, replica: str) -> int:
        return 2 if replica == "m@m" else 0

    def progress(self) -> dict[str, tuple[Phase, int | None]]:
        return {}

    def happens(self, event: str, *facts: object) -> None:
        self.now += 1
        notify(self.observers.callbacks(event), *facts)

    def names(self) -> list[str]:
        return [each["event"] for each in self.kept.newest_first(0, 5000)]

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            self.kept.tick()
            await asyncio.to_thread(lambda: None)  # so that other threads get on

    async def until_written(self) -> list[dict[str, Any]]:
        """The file, once it has all events of this run."""
        newest = self.kept.newest_first(0, 1)[0]
        await self.until(lambda: [json.loads(line) for line in _lines(self.file)[-1:]] == [newest])
        return [json.loads(line) for line in _lines(self.file)]


def _lines(file: Path) -> list[str]:
    """Those that are whole."""
    return file.read_text().split("\n")[:-1] if file.exists() else []


async def test_events_of_an_earlier_run_are_still_known(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.happens("swap_started", "m@m", ("n@n",))
    run.error = "connection refused"
    run.happens("backend_health", "a", Health.UNHEALTHY)
    written = await run.until_written()
    assert [each["event"] for each in written] == ["gateway_started", "swap_started", "backend_health"]
    assert written[1] == {"event": "swap_started", "time": 101.0, "target": "m@m", "evict": ["n@n"], "waiting": 2}
    assert written[2]["error"] == "connection refused"

    later = Run(tmp_path)
    later.happens("replica_state", "m@m", ReplicaState.READY)
    await later.until(lambda: len(later.names()) == 5)
    assert later.names()[:3] == ["replica_state", "gateway_started", "backend_health"]
    assert len(await later.until_written()) == 5


async def test_a_run_begins_with_what_was_unhealthy_before_events_were_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, "connection refused")
    assert run.names() == ["backend_health", "gateway_started"]
    (first,) = run.kept.newest_first(0, 1)
    assert (first["backend"], first["health"], first["error"]) == ("a", "unhealthy", "connection refused")


async def test_a_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event": "x", "time": 1}\n[1]\n{"event": "y", "ti\n')
    run = Run(tmp_path)
    await run.until(lambda: "x" in run.names())
    assert run.names() == ["gateway_started", "x"]


async def test_moves_are_read_from_the_records_of_ended_requests(tmp_path: Path) -> None:
    run = Run(tmp_path)
    gap = StreamGap(cause="drain", began=10.6, seconds=0.25, ended=10.85)
    first, second = attempt("a", "moved"), attempt("b", "served")
    record = request_record(moves=1, ended=11.0, attempts=[first, msgspec.structs.replace(second, gap=gap)])
    run.ended = [EndedRequest(1, 1000.0, record, [], "::1")]
    run.kept.tick()
    [moved, _] = run.kept.newest_first(0, 9)
    assert (moved["event"], moved["time"], moved["cause"]) == ("request_moved", 999.6, "drain")
    assert (moved["source"], moved["destination"], moved["gap_ms"]) == ("a", "b", 250)
    run.kept.tick()
    assert len(run.names()) == 2


async def test_the_file_and_its_lines_stay_small(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in range(4100):
        run.happens("swap_started", "t" * 600 if number > 4000 else "t", (f"m{number}",) * 30)
        if number % 500 == 0:
            await run.until_written()
    written = await run.until_written()
    assert len(written) <= 4000
    assert len(run.names()) == 2000
    assert (len(written[-1]["target"]), len(written[-1]["evict"])) == (500, 20)
    assert not (tmp_path / "events.new").exists()


async def test_a_folder_that_cannot_be_written_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path / "missing")
    await run.until(lambda: caplog.records)
    assert "not kept in the state folder" in caplog.text
    assert run.names() == ["gateway_started"]


async def test_the_file_stays_small_however_often_the_gateway_starts(tmp_path: Path) -> None:
    line = json.dumps({"event": "x", "time": 1}) + "\n"
    (tmp_path / "events.jsonl").write_text(line * 6000)
    run = Run(tmp_path)
    await run.until(lambda: "x" in run.names())
    assert len(await run.until_written()) == 2000


async def test_what_a_policy_says_of_many_requests_is_shortened(tmp_path: Path) -> None:
    run = Run(tmp_path)
    refused = {f"request-{number}": "why " * 500 for number in range(100)}
    migration = Migration(policy="p", source="a", destination="b", rule="TOKEN", order="SR", value=1)
    run.happens("migrated", migration, Migrated(refused=refused))
    (event,) = run.kept.newest_first(0, 1)
    assert [len(why) for why in event["refused"].values()] == [500] * 20
