"""Rescheduling: the view of a cluster, and what moves in it."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.scheduling import ReschedulingSettings
from enginehouse.domain.instance import (
    ClusterView,
    InFlight,
    InstanceAddress,
    InstanceMetadata,
    InstanceReport,
    InstanceStatus,
    InstanceView,
    Migrated,
    Migration,
    RequestView,
)

__all__ = [
    "ClusterView",
    "InFlight",
    "InstanceAddress",
    "InstanceMetadata",
    "InstanceReport",
    "InstanceStatus",
    "InstanceView",
    "Migrated",
    "Migration",
    "RequestView",
    "ReschedulingSettings",
]

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
