"""What rescheduling sees and decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse.domain.replica import Role


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """Move requests from one instance to another.

    ``rule`` (``NUM_REQ``, ``TOKEN``, ``RATIO``) says in which unit ``value`` counts, ``order`` which requests go first.
    """

    policy: str
    source: str
    destination: str
    rule: str
    order: str
    value: float


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """One engine instance; ``status`` and ``inflight`` hold Llumnix's field names."""

    id: str
    node: str = ""
    unit: str = ""
    role: Role = Role.NEUTRAL
    reserved: bool = False
    data_parallel_size: int = 1
    block_size: int = 16
    max_num_batched_tokens: int = 0
    status: Mapping[str, Any] = {}
    inflight: Mapping[str, Any] = {}


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """Every instance at one moment; ``now_ms`` is milliseconds since the epoch."""

    now_ms: int
    instances: tuple[InstanceView, ...] = ()
