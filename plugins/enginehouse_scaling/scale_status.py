"""What operators and autoscalers see of a model whose replicas follow its load."""

from __future__ import annotations

import msgspec


class ScaleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model: the replicas that run or start, those that are wanted, and why."""

    model: str
    replicas: int
    wanted: int
    why: str
