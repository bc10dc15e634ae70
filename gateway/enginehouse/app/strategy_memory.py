"""Keeps what strategies have learned: through a reload, a take-over and a restart."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.engines.state_file import replace_file
from enginehouse.interfaces.strategies import MOST_REMEMBERED

_log = logging.getLogger(__name__)

_FORMAT = 1
_EVERY_S = 60.0
_MOST_STRATEGIES = 16
_CHECK = hash((1, -2, 1 << 40))
"""Strategies may keep hashes of numbers, which are the same in all processes of the same kind of Python."""


class _Kept(msgspec.Struct, frozen=True):
    """The file. ``memories``: what each type of strategy keeps."""

    format: int
    python: tuple[str, int]
    memories: dict[str, bytes]


_PYTHON = (sys.implementation.name, _CHECK)


class StrategyMemory:
    """Writes what strategies remember to a file every minute, and when it is told to; reads it once, at the start.

    ``memories`` collects it, by type of strategy. ``recall`` gives it back.
    """

    def __init__(
        self, memories: Callable[[], Mapping[str, bytes]], recall: Callable[[Mapping[str, bytes]], None]
    ) -> None:
        self._memories = memories
        self._recall = recall
        self._path: Path | None = None
        self._written: Mapping[str, bytes] = {}
        self._tasks = BackgroundTasks()

    async def open(self, folder: Path) -> None:
        """Read the file in ``folder``, if there is one, and keep it up to date from now on."""
        self._path = folder / "strategies.bin"
        memories = await asyncio.to_thread(_read, self._path)
        if memories:
            self._recall(memories)
        self._written = self._memories()
        self._tasks.every(_EVERY_S, self.save)

    async def save(self) -> None:
        """Write the file now, if something has changed."""
        if self._path is None:
            return
        memories = {type: memory for type, memory in self._memories().items() if _fits(type, memory)}
        if memories != self._written:
            self._written = memories
            await asyncio.to_thread(_write, self._path, memories)

    def close(self) -> None:
        """Write no more: the file is another gateway's, or this one ends."""
        self._path = None
        self._tasks.cancel()


def _fits(type: str, memory: bytes) -> bool:
    if len(memory) <= MOST_REMEMBERED:
        return True
    _log.warning(
        "The state of the strategy '%s' is not saved: it has %d bytes, and the limit is %d",
        type,
        len(memory),
        MOST_REMEMBERED,
    )
    return False


def _read(path: Path) -> Mapping[str, bytes]:
    lost = "so strategies learn from scratch"
    try:
        if path.stat().st_size > _MOST_STRATEGIES * MOST_REMEMBERED:
            _log.warning("%s is too large, %s", path, lost)
            return {}
        kept = msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("%s cannot be read, %s: %s", path, lost, error)
        return {}
    if kept.format != _FORMAT or kept.python != _PYTHON:
        _log.warning("%s was written by another version or another Python, %s", path, lost)
        return {}
    return kept.memories


def _write(path: Path, memories: Mapping[str, bytes]) -> None:
    try:
        replace_file(path, msgspec.msgpack.encode(_Kept(_FORMAT, _PYTHON, dict(memories))))
    except OSError as error:
        _log.warning("%s cannot be written, so the next gateway's strategies learn from scratch: %s", path, error)
