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
    utilization: float | None = None
    """The share of the last moments in which it worked, from 0 to 1; ``None`` if that is not known."""
