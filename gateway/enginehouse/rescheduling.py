"""Rescheduling: what engines report of their load, and the settings."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.scheduling import ReschedulingSettings
from enginehouse.domain.instance import (
    InstanceAddress,
    InstanceMetadata,
    InstanceReport,
    InstanceStatus,
    RequestView,
)

__all__ = [
    "InstanceAddress",
    "InstanceMetadata",
    "InstanceReport",
    "InstanceStatus",
    "RequestView",
    "ReschedulingSettings",
]

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
