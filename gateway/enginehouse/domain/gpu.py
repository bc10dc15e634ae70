"""GPUs."""

from __future__ import annotations

import msgspec


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU of this machine and its memory in bytes, as NVIDIA's management library (NVML) reports them.

    ``processes`` has the bytes that each process holds, by process id. It is empty if the library does not report them,
    as in some containers.
    """

    index: int
    uuid: str
    name: str
    total: int
    used: int
    free: int
    processes: dict[int, int] = {}


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as operators see it: its memory in bytes, and the replicas whose engines use it."""

    host: str
    gpu: int
    name: str
    uuid: str
    total: int
    used: int
    free: int
    replicas: list[str]
