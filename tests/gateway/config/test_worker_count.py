"""How many workers serve."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enginehouse.config.schema import ServerSettings
from enginehouse.config.server import worker_count


def test_a_number_is_taken_as_it_is() -> None:
    found = worker_count(ServerSettings(workers=3))
    assert (found.number, found.why) == (3, "server.workers = 3")


@pytest.mark.parametrize(
    ("quota", "number"), [(None, 4), ("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("800000 100000", 4)]
)
def test_auto_is_the_cores_that_the_process_may_use(
    quota: str | None, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(f"{quota}\n")
    found = worker_count(ServerSettings(workers="auto"), file)
    assert found.number == number
    assert "the process may use 4 cores" in found.why
    assert ("control group" in found.why) is (number < 4)
