"""GPUs that are not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from enginehouse.domain.gpu import Gpu

GIB = 1 << 30


def gpu(index: int, *, free: int = 80 * GIB, total: int = 80 * GIB, processes: Mapping[int, int] | None = None) -> Gpu:
    """A GPU of this machine."""
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H100",
        total=total,
        used=total - free,
        free=free,
        processes=dict(processes or {}),
    )


class FakeGpus:
    """Reads ``gpus``, which a test may change."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = list(gpus)

    def read(self) -> Sequence[Gpu]:
        return list(self.gpus)

    def __call__(self) -> Sequence[Gpu]:
        return self.read()


class NvmlFailure(Exception):
    """Stands for ``pynvml.NVMLError``."""


class FakeNvml:
    """The functions of ``pynvml``, on a machine with two GPUs.

    ``broken``: each of them fails. ``lost``: the number of a GPU that cannot be read.
    """

    def __init__(self) -> None:
        self.broken = False
        self.lost: int | None = None
        self.processes: dict[int, dict[int, int | None]] = {0: {}, 1: {}}

    def functions(self) -> dict[str, Any]:
        """What the module has."""
        named: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: len(self.processes),
            "nvmlDeviceGetHandleByIndex": self._handle,
            "nvmlDeviceGetUUID": lambda index: f"GPU-{index}".encode(),
            "nvmlDeviceGetName": lambda index: "NVIDIA H100",
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=80 * GIB, used=2 * GIB, free=78 * GIB),
            "nvmlDeviceGetComputeRunningProcesses": self._running,
            "nvmlDeviceGetUtilizationRates": lambda index: SimpleNamespace(gpu=40 + index, memory=1),
        }
        return {"NVMLError": NvmlFailure, **{name: self._guarded(call) for name, call in named.items()}}

    def _handle(self, index: int) -> int:
        if index == self.lost:
            raise NvmlFailure("GPU is lost")
        return index

    def _running(self, index: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.processes[index].items()]

    def _guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any) -> Any:
            if self.broken:
                raise NvmlFailure("Driver Not Loaded")
            return call(*arguments)

        return guarded
