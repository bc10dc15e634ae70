"""What an engine's core is told at its launch."""

from __future__ import annotations

import msgspec

from enginehouse_sim.offload.settings import OffloadSettings
from enginehouse_sim.scheduler.constants import SchedulerConstants


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, speed and character of an engine.

    ``profile``: the name or file of a speed profile; empty: ``ttft`` seconds until a request's first token, and
    ``tpot`` from one to the next. ``speedup`` divides all times, ``decode_speedup`` those of decodes as well; 0 is no
    time at all. ``seed``: what all text is made from. ``mean_length``: tokens after which an answer ends by itself, on
    average; ``None`` is never. ``draft_acceptance``: the chance of a draft to be right. ``host_blocks``: blocks of
    host memory that requests can be moved to before the cache runs out, over a link of ``host_bandwidth`` bytes per
    second; 0 is none, and whoever has no room is preempted.
    """

    constants: SchedulerConstants = SchedulerConstants()
    profile: str = ""
    ttft: float = 0.05
    tpot: float = 0.01
    speedup: float = 1.0
    decode_speedup: float = 1.0
    seed: int = 0
    mean_length: int | None = None
    draft_acceptance: float = 0.7
    host_blocks: int = 0
    host_bandwidth: float = 25e9
    offload: OffloadSettings = OffloadSettings()
