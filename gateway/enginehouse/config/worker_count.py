"""How many workers serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from enginehouse.config.schema import ServerSettings

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class WorkerCount(NamedTuple):
    """The number of workers, and for people the reason."""

    number: int
    why: str


def worker_count(server: ServerSettings, quota: Path = _QUOTA) -> WorkerCount:
    """How many workers ``server.workers`` asks for; ``auto``: as many as there are cores that the process may use."""
    if server.workers != "auto":
        return WorkerCount(server.workers, f"server.workers = {server.workers}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    why = f'server.workers = "auto", and the process may use {cores} core{"s" if cores > 1 else ""}'
    limit = _limit(quota)
    if limit is not None and limit < cores:
        return WorkerCount(limit, f"{why}, of which its control group allows the time of {limit}")
    return WorkerCount(cores, why)


def _limit(quota: Path) -> int | None:
    """The cores whose whole time the control group allows, at least 1; ``None`` without a limit."""
    try:
        allowed, period = quota.read_text().split()
        return max(1, int(allowed) // int(period))
    except (OSError, ValueError):
        return None
