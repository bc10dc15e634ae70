"""Counters of energy. They block for some milliseconds, so they are read in a thread."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

_log = logging.getLogger(__name__)


_WHOLE: Final = "psys"
"""The zone of the whole machine, which has the packages too."""


class Meter(Protocol):
    """Something with counters of energy."""

    def read(self) -> Mapping[str, float]:
        """The energy in joules that each device has used, since any moment that stays the same."""


class Nvml:
    """NVIDIA's GPUs. ``now``: seconds of any clock."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._library: Any = None
        self._tried = False
        self._integrated: dict[str, tuple[float, float]] = {}
        self._left_out: set[str] = set()

    def read(self) -> Mapping[str, float]:
        if not self._tried:
            self._tried = True
            self._library = _nvml()
        library = self._library
        if library is None:
            return {}
        try:
            count = library.nvmlDeviceGetCount()
        except library.NVMLError as error:
            _log.warning("The GPUs cannot be read any more: %s", error)
            self._library = None
            return {}
        found = {}
        for index in range(count):
            name = f"gpu-{index}"
            try:
                found[name] = self._joules(name, index)
            except library.NVMLError as error:
                if name not in self._left_out:
                    _log.warning("The energy of %s is left out: %s", name, error)
                    self._left_out.add(name)
        return found

    def _joules(self, name: str, index: int) -> float:
        library = self._library
        handle = library.nvmlDeviceGetHandleByIndex(index)
        try:
            return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
        except library.NVMLError:  # older than Volta: it tells only its power
            watts, now = float(library.nvmlDeviceGetPowerUsage(handle)) / 1e3, self._now()
        before, joules = self._integrated.get(name, (now, 0.0))
        joules += watts * (now - before)
        self._integrated[name] = now, joules
        return joules


class Rapl:
    """The packages of processors, as Linux shows them in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: dict[str, int] = {}
        self._joules: dict[str, float] = {}
        self._problem = ""

    def read(self) -> Mapping[str, float]:
        for zone in sorted(self._folder.glob("*-rapl:*")):
            if zone.name.count(":") != 1:  # a part of a package, which has all
                continue
            try:
                if (zone / "name").read_text("ascii").strip() == _WHOLE:
                    continue
                self._add(zone.name, _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj"))
            except (OSError, ValueError) as error:
                self._note(f"{zone}: {error}")
        return dict(self._joules)

    def _add(self, name: str, now: int, most: int) -> None:
        before = self._before.get(name, now)
        used = now - before if now >= before else now - before + most  # the counter has begun again
        self._before[name] = now
        self._joules[name] = self._joules.get(name, 0.0) + used / 1e6

    def _note(self, problem: str) -> None:
        if not self._problem:
            _log.warning("The energy of processors is left out: %s", problem)
        self._problem = problem


def _number(file: Path) -> int:
    return int(file.read_text("ascii"))


def _nvml() -> Any:
    """The library, ready for use; ``None`` if the package or the driver is missing."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    return library
