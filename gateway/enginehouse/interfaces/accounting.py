"""Accounting: counts requests in and out, as an authenticator may do besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec

from enginehouse.aio.clock import Clock
from enginehouse.config.auth import LimitAmounts
from enginehouse.domain.errors import Forbidden
from enginehouse.domain.metric_info import MetricInfo
from enginehouse.domain.request import Headers
from enginehouse.domain.request_facts import RequestFacts
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.usage import AuditEntry, UsageRow
from enginehouse.interfaces.authenticators import AdmittedCaller, Caller, Reserved
from enginehouse.interfaces.services import Measured

if TYPE_CHECKING:  # the command line starts without it
    from starlette.routing import BaseRoute


LimitPeriod = Literal["minute", "day", "month", "at_once"]
"""``minute``: refills evenly. ``day`` and ``month``: whole again when one begins, in UTC. ``at_once``: comes back only
when it is given back."""


class LimitRule(NamedTuple):
    """The most of something that may be taken in a period. ``amount`` is positive."""

    amount: float
    per: LimitPeriod


class TakenLimit(NamedTuple):
    """How much of a limit is taken."""

    rule: LimitRule
    amount: float
    passing: bool = False
    """Whether it is one of ``LimitStore.passing_limit``."""


class LimitLeft(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one limit of a caller."""

    limit: str
    """Its key in the configuration, such as ``tokens_per_day``."""
    models: Sequence[str] = ("*",)
    """For which it holds."""
    amount: float
    left: float
    """It is negative if more was used than expected."""
    full_in: float
    """Seconds until all of it is there again, if nothing more is taken; 0 for a limit of requests at once."""


class ClientAddresses(Protocol):
    """The limits of client addresses."""

    def admit(
        self, address: str, headers: Headers, requirements: Requirements, answer_limit: int | None
    ) -> Reserved | None:
        """Count a request in; returns ``None`` without limits. Raises ``RateLimited``."""


class RequestMeter(Protocol):
    """Learns of each request that has ended."""

    def add(self, facts: RequestFacts, model: str, prompt: int) -> None:
        """Add a request to ``model``; ``prompt``: the estimated tokens of its prompt, for engines that count none."""


class CountedGateway(Protocol):
    """One process of a gateway, as its accounting sees it."""

    @property
    def clock(self) -> Clock:
        """Its time, which may be virtual."""

    @property
    def authenticators(self) -> Sequence[str]:
        """The types of all authenticators: the names of their callers begin with these."""

    @property
    def memory(self) -> Any:
        """What ``Accounting.share`` has returned; ``None`` in a gateway of one process."""

    @property
    def process(self) -> int:
        """The number of this one of the processes that share memory."""

    def is_open(self) -> bool:
        """Whether requests need no credential now."""

    def has_operators(self) -> bool:
        """Whether anyone may use operators' pages now."""

    def limits_of(self, name: str) -> LimitAmounts | None:
        """The limits of the caller of that name, as authenticators know them."""

    def count(self, meter: RequestMeter | None, addresses: ClientAddresses | None, *, ask_streams: bool) -> None:
        """Report requests to ``meter`` when they end, and limit client ``addresses``, from now on.

        ``ask_streams``: ask engines for the usage of streams whose clients do not.
        """


class Accounting:
    """What an authenticator may be besides: it counts the requests of all callers, whoever knows them.

    A gateway has one at most, in each of its processes. This class itself counts nothing.
    """

    metrics: ClassVar[Sequence[MetricInfo]] = ()
    """The metrics that ``measure`` may have."""

    @classmethod
    def share(cls, processes: int) -> Any:
        """Return what that many processes of a gateway will share, such as memory: they are forked after this."""
        return None

    def join(self, gateway: CountedGateway) -> None:
        """Take the process of the gateway, before any other call."""

    def open(self, folder: Path, deliver: Callable[[bytes], None] | None) -> None:
        """Read what the state ``folder`` keeps. Raise ``ConfigError`` for what cannot be read.

        ``deliver``: brings what this process has counted to ``receive`` of the one that owns the folder, where it is
        ``None``.
        """

    async def start(self) -> None:
        """Begin to work. Requests come after this."""

    async def close(self) -> None:
        """Write or deliver the rest, and end."""

    def counted(self, name: str, caller: Caller) -> AdmittedCaller:
        """``caller`` as one whose requests count against its limits, under this ``name``."""
        if caller.limits is not None:
            raise Forbidden(f"Nobody counts the limits of '{name}': enable the plugin 'callers'")
        return AdmittedCaller(name, caller.models, admin=caller.admin, priority=caller.priority, weight=caller.weight)

    def receive(self, message: bytes) -> None:
        """Add what another process has delivered."""

    def process_died(self, process: int) -> None:
        """Free what the requests of a process have in use that has died."""

    def taken(self) -> Mapping[str, TakenLimit]:
        """Return what is taken of limits, for the gateway that takes over."""
        return {}

    def recall(self, taken: Mapping[str, TakenLimit]) -> None:
        """Count what the gateway before this one had ``taken``."""

    def problem(self) -> str:
        """Return why limits are not shared with other gateways now; empty if they are, or need not be."""
        return ""

    def measure(self) -> Measured:
        """The current values of ``metrics``. Where several processes serve, the one that owns the folder is asked."""
        return {}

    def routes(self) -> Sequence[BaseRoute]:
        """Return pages for operators."""
        return ()

    def used(self, rows: Sequence[UsageRow]) -> None:
        """Add what callers have used besides, such as energy."""

    def note(self, entry: AuditEntry) -> None:
        """Keep an act of an operator."""

    async def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        """The last ``most`` acts of operators since then, the newest first."""
        return ()

    def limits_left(self, name: str) -> Sequence[LimitLeft]:
        """Return what is left of the limits of the caller of that name, but for those of end users."""
        return ()

    def cost(self, model: str, tokens_in: float, tokens_cached: float, tokens_out: float) -> float:
        """The price of so many tokens of ``model``; ``tokens_cached`` are some of ``tokens_in``."""
        return 0.0

    async def usage(
        self,
        since: float,
        until: float,
        by: Sequence[str] = ("hour", "key", "model", "user"),
        key: str | None = None,
        most: int | None = None,
    ) -> Sequence[UsageRow]:
        """What was used, as ``UsageStore.sums``."""
        return ()
