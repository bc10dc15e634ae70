"""Reads the GPUs of this machine with NVIDIA's management library, if ``nvidia-ml-py`` is installed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import Any

from enginehouse.launchers import Gpu

_log = logging.getLogger(__name__)

_MODULE = "pynvml"


class Nvml:
    """NVIDIA's management library. Loaded by the first ``read``; a machine without it has no GPUs."""

    def __init__(self) -> None:
        self._library: Any = None
        self._tried = False
        self._problem = ""

    def read(self) -> Sequence[Gpu]:
        """The GPUs now, in the order of their numbers, without those that cannot be read.

        Blocks for some milliseconds. An error is logged once, and does not keep a later call from reading.
        """
        if not self._tried:
            self._tried = True
            self._library = _load()
        library = self._library
        if library is None:
            return ()
        gpus: list[Gpu] = []
        problem = ""
        try:
            for index in range(library.nvmlDeviceGetCount()):
                try:
                    gpus.append(self._gpu(index))
                except library.NVMLError as error:  # noqa: PERF203 - a lost one hides no other
                    problem = f"GPU {index} cannot be read: {error}"
        except library.NVMLError as error:
            problem = f"The GPUs cannot be read: {error}"
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem
        if problem and not gpus:  # a driver that was replaced needs a new beginning
            self._library = _load() or library
        return gpus

    def _gpu(self, index: int) -> Gpu:
        library = self._library
        handle = library.nvmlDeviceGetHandleByIndex(index)
        memory = library.nvmlDeviceGetMemoryInfo(handle)
        return Gpu(
            index=index,
            uuid=_text(library.nvmlDeviceGetUUID(handle)),
            name=_text(library.nvmlDeviceGetName(handle)),
            total=memory.total,
            used=memory.used,
            free=memory.free,
            processes=self._processes(handle),
            utilization=self._utilization(handle),
        )

    def _processes(self, handle: Any) -> dict[int, int]:
        try:
            listed = self._library.nvmlDeviceGetComputeRunningProcesses(handle)
        except self._library.NVMLError:  # not supported here
            return {}
        return {each.pid: each.usedGpuMemory for each in listed if each.usedGpuMemory is not None}

    def _utilization(self, handle: Any) -> float | None:
        try:
            return float(self._library.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
        except self._library.NVMLError:  # not supported here, as for parts of a GPU
            return None


def _load() -> Any:
    """The library, ready for use; ``None`` if the package or the driver is missing."""
    try:
        library = importlib.import_module(_MODULE)
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        _log.debug("There are no NVIDIA GPUs here: %s", error)
        return None
    return library


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # older releases return bytes
