"""Rescheduling: the view of a cluster, and the migrations that a policy plans."""

from __future__ import annotations

from enginehouse.config.scheduling import ReschedulingSettings
from enginehouse.domain.instance import (
    ClusterView,
    DroppedPair,
    InFlight,
    InstanceAddress,
    InstanceMetadata,
    InstanceReport,
    InstanceStatus,
    InstanceView,
    Migrated,
    Migration,
    Plan,
    RequestView,
)

__all__ = [
    "ClusterView",
    "DroppedPair",
    "InFlight",
    "InstanceAddress",
    "InstanceMetadata",
    "InstanceReport",
    "InstanceStatus",
    "InstanceView",
    "Migrated",
    "Migration",
    "Plan",
    "RequestView",
    "ReschedulingSettings",
]
