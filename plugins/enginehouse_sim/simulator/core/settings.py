"""The settings of an engine core."""

from __future__ import annotations

import msgspec

from enginehouse_sim.simulator.domain.constants import OffloadSettings, SchedulerConstants


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, speed and text of an engine.

    ``profile``: the name or file of a speed profile. Without one, ``ttft`` is the time to a request's first token, and
    ``tpot`` the time from one token to the next. ``speedup`` divides all times, ``decode_speedup`` those of decodes as
    well; 0 means no time at all. ``seed``: decides all text. ``mean_length``: the average tokens until an answer ends
    by itself; ``None`` is never. ``draft_acceptance``: the chance of each draft to be right. ``host_blocks``: blocks of
    host memory that requests are offloaded to before the cache runs out, over a link of ``host_bandwidth`` bytes per
    second; with 0, requests are preempted instead.
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
