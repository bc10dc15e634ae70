"""What strategies have learned outlives their gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from enginehouse.app import strategy_memory
from enginehouse.app.strategy_memory import StrategyMemory


class Learning:
    """The strategies of a gateway."""

    def __init__(self, **memories: bytes) -> None:
        self.memories: Mapping[str, bytes] = memories
        self.recalled: list[Mapping[str, bytes]] = []

    def run(self, folder: Path, *steps: Callable[[], object]) -> None:
        """A gateway's life: ``steps`` happen, with the memory saved after each."""

        async def live() -> None:
            memory = StrategyMemory(lambda: self.memories, self.recalled.append)
            await memory.open(folder)
            for step in steps:
                step()
                await memory.save()
            memory.close()

        asyncio.run(live())


def test_the_next_gateway_knows_what_the_last_one_learned(tmp_path: Path) -> None:
    first, second = Learning(), Learning()

    def learn() -> None:
        first.memories = {"a": b"1", "b": b"2"}

    first.run(tmp_path, learn)
    second.run(tmp_path)
    assert first.recalled == []
    assert second.recalled == [{"a": b"1", "b": b"2"}]
    assert (tmp_path / "strategies.bin").stat().st_mode & 0o077 == 0


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    learning = Learning(a=b"1")
    learning.run(tmp_path, lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_too_much_is_not_kept_and_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(strategy_memory, "MOST_REMEMBERED", 10)
    learning, second = Learning(), Learning()

    def learn() -> None:
        learning.memories = {"small": b"x", "large": b"x" * 11}

    learning.run(tmp_path, learn)
    second.run(tmp_path)
    assert second.recalled == [{"small": b"x"}]
    assert "'large' is not saved: it has 11 bytes" in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"nonsense", "cannot be read, so strategies learn from scratch"),
        (b"", "cannot be read, so strategies learn from scratch"),
        (msgspec.msgpack.encode({"format": 99, "python": ["cpython", 1], "memories": {}}), "by another version"),
        (msgspec.msgpack.encode({"format": 1, "python": ["cpython", 1], "memories": {}}), "another Python"),
        (b"x" * 400, "is too large"),
    ],
)
def test_an_unusable_file_is_ignored_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: bytes, problem: str
) -> None:
    monkeypatch.setattr(strategy_memory, "MOST_REMEMBERED", 20)
    (tmp_path / "strategies.bin").write_bytes(content)
    learning = Learning()
    learning.run(tmp_path)
    assert learning.recalled == []
    assert problem in caplog.text


def test_a_folder_that_cannot_be_written_costs_a_line_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learning = Learning()

    def learn() -> None:
        learning.memories = {"a": b"1"}

    learning.run(tmp_path / "gone", learn)
    assert "cannot be written, so the next gateway's strategies learn from scratch" in caplog.text
