"""Who sends requests: authenticators, limits, accounting and usage."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.auth import (
    NAMESPACES,
    JwtSettings,
    KeyLimitSettings,
    KeySettings,
    LimitAmounts,
    PriceSettings,
    moment,
)
from enginehouse.config.server import ServerSettings
from enginehouse.domain.usage import AuditEntry, UsageRow
from enginehouse.interfaces.accounting import Accounting, CountedGateway, LimitLeft, LimitPeriod, LimitRule, TakenLimit
from enginehouse.interfaces.authenticators import AdmittedCaller, Caller

__all__ = [
    "NAMESPACES",
    "Accounting",
    "AdmittedCaller",
    "AuditEntry",
    "Caller",
    "CountedGateway",
    "JwtSettings",
    "KeyLimitSettings",
    "KeySettings",
    "LimitAmounts",
    "LimitLeft",
    "LimitPeriod",
    "LimitRule",
    "PriceSettings",
    "ServerSettings",
    "TakenLimit",
    "UsageRow",
    "moment",
]

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
