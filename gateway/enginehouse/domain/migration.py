"""The input and the output of rescheduling policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse.domain.replica import Role


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """An order to move live requests from one instance to another."""

    policy: str
    """The type of the policy that decided it."""
    source: str
    destination: str
    rule: str
    """The unit of ``value``: ``NUM_REQ``, ``TOKEN`` or ``RATIO``."""
    order: str
    """Which requests move first: a value of ``rescheduling.req_select_order``."""
    value: float
    """How much to move, in the unit of ``rule``."""


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """One engine instance. The keys of ``status`` and ``inflight`` are Llumnix's field names."""

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
    """All instances at one moment. ``now_ms`` is in milliseconds since the Unix epoch."""

    now_ms: int
    instances: tuple[InstanceView, ...] = ()
