"""Limits that several gateways share, each with a lease."""

from __future__ import annotations

from enginehouse_kit.limits.lease_book import LeaseBook
from enginehouse_kit.limits.leased_limits import Lease, LeaseAsk, LeasedLimitStore, Leases
from enginehouse_kit.limits.local_limit import LocalLimit

__all__ = [
    "Lease",
    "LeaseAsk",
    "LeaseBook",
    "LeasedLimitStore",
    "Leases",
    "LocalLimit",
]
