"""Rescheduling: what engines report of their load, and the settings."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.scheduling import ReschedulingSettings as ReschedulingSettings
from enginehouse.domain.instance import InstanceAddress as InstanceAddress
from enginehouse.domain.instance import InstanceMetadata as InstanceMetadata
from enginehouse.domain.instance import InstanceReport as InstanceReport
from enginehouse.domain.instance import InstanceStatus as InstanceStatus
from enginehouse.domain.instance import RequestView as RequestView

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
