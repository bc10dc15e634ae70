"""Who sends requests: authenticators, limits, accounting and usage."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.auth import NAMESPACES as NAMESPACES
from enginehouse.config.auth import JwtSettings as JwtSettings
from enginehouse.config.auth import KeyLimitSettings as KeyLimitSettings
from enginehouse.config.auth import KeySettings as KeySettings
from enginehouse.config.auth import LimitAmounts as LimitAmounts
from enginehouse.config.auth import PriceSettings as PriceSettings
from enginehouse.config.auth import moment as moment
from enginehouse.config.server import ServerSettings as ServerSettings
from enginehouse.domain.usage import AuditEntry as AuditEntry
from enginehouse.domain.usage import UsageRow as UsageRow
from enginehouse.interfaces.accounting import Accounting as Accounting
from enginehouse.interfaces.accounting import CountedGateway as CountedGateway
from enginehouse.interfaces.accounting import LimitLeft as LimitLeft
from enginehouse.interfaces.accounting import LimitPeriod as LimitPeriod
from enginehouse.interfaces.accounting import LimitRule as LimitRule
from enginehouse.interfaces.accounting import TakenLimit as TakenLimit
from enginehouse.interfaces.authenticators import AdmittedCaller as AdmittedCaller
from enginehouse.interfaces.authenticators import Caller as Caller

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
