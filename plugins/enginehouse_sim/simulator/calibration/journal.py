"""The journal of a calibration, so that one that was interrupted goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.calibration.fit import Observation


class _Head(msgspec.Struct, frozen=True):
    """Which engine was probed, and which probes."""

    url: str
    model: str
    probes: str


class _Entry(msgspec.Struct, frozen=True):
    """A probe that was carried out."""

    repeat: int
    probe: str
    observations: list[Observation]


class Journal:
    """The observations so far, in the lines of a file. Raises ``ConfigError`` if it is about other probes."""

    def __init__(self, path: Path, url: str, model: str, probes: str) -> None:
        self.observations: list[Observation] = []
        self._path = path
        self._done: set[tuple[int, str]] = set()
        head = _Head(url, model, probes)
        if path.exists():
            self._read(head)
        else:
            self._append(head)

    def has(self, repeat: int, probe: str) -> bool:
        """Whether this repeat of a probe was carried out before."""
        return (repeat, probe) in self._done

    def add(self, repeat: int, probe: str, observations: list[Observation]) -> None:
        """Keep the observations of a probe."""
        self._append(_Entry(repeat, probe, observations))
        self.observations += observations

    def _read(self, head: _Head) -> None:
        try:
            first, *lines = self._path.read_bytes().splitlines()
            if msgspec.json.decode(first, type=_Head) != head:
                raise ConfigError(
                    "has probes of another engine or with other bounds", file=str(self._path), remedy="--fresh"
                )
            for line in lines:
                entry = msgspec.json.decode(line, type=_Entry)
                self._done.add((entry.repeat, entry.probe))
                self.observations += entry.observations
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"cannot be read: {error}", file=str(self._path), remedy="start over with --fresh"
            ) from None

    def _append(self, line: msgspec.Struct) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(self._path)) from None
