"""The engines that may be asleep, in a file that the next gateway reads."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from enginehouse.domain.replica import AT_REST, ReplicaState

_log = logging.getLogger(__name__)


class Sleepers:
    """The names of engines that were put to sleep, from before they are asked until they are ready again or gone.

    Not every engine reports whether it sleeps, and some break if they are woken while they are awake.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "asleep.json"
        self._names = self._read()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def follow(self, name: str, state: ReplicaState, *, may_sleep: bool) -> None:
        """Note that the engine ``name`` has the new ``state``. One that stops and may sleep is asked to sleep next."""
        if state is ReplicaState.READY or state in AT_REST:
            self.note(name, asleep=False)
        elif state is ReplicaState.STOPPING and may_sleep:
            self.note(name, asleep=True)

    def note(self, name: str, *, asleep: bool) -> None:
        """Keep whether the engine ``name`` may be asleep."""
        if (name in self._names) == asleep:
            return
        self._names = self._names | {name} if asleep else self._names - {name}
        unfinished = self._path.with_suffix(".new")
        try:
            unfinished.write_bytes(msgspec.json.encode(sorted(self._names)))
            unfinished.replace(self._path)
        except OSError as error:
            _log.warning("%s cannot be written, so a sleeping engine may not be woken: %s", self._path, error)

    def _read(self) -> frozenset[str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=frozenset[str])
        except FileNotFoundError:
            return frozenset()
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("%s cannot be read, so a sleeping engine may not be woken: %s", self._path, error)
            return frozenset()
