"""Rescheduling: policies decide which live requests move between instances, and migrators move them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import msgspec

from enginehouse import Role
from enginehouse.drivers import EngineClient
from enginehouse.rescheduling import InstanceAddress, InstanceStatus, RequestView, ReschedulingSettings

__all__ = [
    "ClusterView",
    "DroppedPair",
    "InFlight",
    "InstanceView",
    "Migrated",
    "Migration",
    "MigrationMeans",
    "Migrator",
    "Plan",
    "ReschedulingPolicy",
]


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that the gateway has sent to an instance and that its ``InstanceStatus`` does not count yet.

    A request to a neutral instance counts as prefill and as decode.
    """

    num_inflight_dispatch_requests: int = 0
    num_inflight_dispatch_prefill_requests: int = 0
    num_inflight_dispatch_decode_requests: int = 0
    num_uncomputed_tokens_inflight_dispatch_prefill_requests: int = 0
    num_tokens_inflight_dispatch_decode_requests: int = 0


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at one moment."""

    id: str
    node: str = ""
    unit: str = ""
    zone: str = ""
    """Its privacy zone. Requests move only within one."""
    role: Role = Role.NEUTRAL
    reserved: Role | None = None
    """The role for which adaptive disaggregation reserves it; ``None`` for none."""
    models: tuple[str, ...] = ()
    """Its models. Requests move only between instances with a common one. If empty, it has all models of the others."""
    data_parallel_size: int = 0
    """0 and 1 both mean no data parallelism."""
    block_size: int = 0
    """Tokens per block of the KV cache."""
    max_num_batched_tokens: int = 0
    """The most tokens that one step computes."""
    status: InstanceStatus = InstanceStatus()
    inflight: InFlight = InFlight()
    requests: tuple[RequestView, ...] = ()
    address: InstanceAddress = InstanceAddress()

    def shares_model(self, other: InstanceView) -> bool:
        """Whether both have a model in common, so that requests can move between them."""
        return not self.models or not other.models or not set(self.models).isdisjoint(other.models)


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """All instances at one moment. ``now_ms`` is in milliseconds since the Unix epoch."""

    now_ms: int = 0
    instances: tuple[InstanceView, ...] = ()


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """An order to move live requests from one instance to another."""

    EVERYTHING: ClassVar[int] = -1
    """The ``value`` that means, with ``NUM_REQ``, all requests in any order."""

    policy: str
    """The type of the policy that decided it."""
    source: str
    destination: str
    rule: str
    """The unit of ``value``: ``NUM_REQ``, ``TOKEN`` or ``RATIO``."""
    order: str
    """Which requests move first: a value of ``rescheduling.req_select_order``."""
    value: float
    """The amount to move, in the unit of ``rule``."""
    requests: tuple[str, ...] = ()
    """The ids of the requests to move. Without any, ``rule``, ``order`` and ``value`` choose them."""

    @property
    def moves_everything(self) -> bool:
        """Whether all requests must move, even from an instance that rests."""
        return self.rule == "NUM_REQ" and self.value == self.EVERYTHING


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a migration."""

    moved: tuple[str, ...] = ()
    """The ids of the requests that moved."""
    refused: Mapping[str, str] = {}
    """The ids of the requests that stay, with the reasons."""
    found_none: bool = False
    """Whether the source has no request that the migration selects."""


class DroppedPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two instances that a policy paired, but between which no request moves."""

    policy: str
    source: str
    destination: str
    why: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The migrations to carry out, and the pairs that were considered and dropped."""

    migrations: tuple[Migration, ...] = ()
    dropped: tuple[DroppedPair, ...] = ()


class ReschedulingPolicy(ABC):
    """Decides which migrations are worthwhile.

    The gateway drops planned pairs between which no request can move, pairs that contradict an earlier one, and pairs
    with an instance that rests after a migration. So a policy need not check that.
    """

    def prepare(self, settings: ReschedulingSettings) -> None:
        """Called once, before ``plan``, with the configuration's ``[rescheduling]``.

        Raise ``ConfigError`` for settings that the policy cannot work with.
        """

    def reads_streams(self, instance: InstanceView) -> bool:
        """Return whether ``plan`` needs the tokens of this instance's requests, or the reasons why they stay.

        The gateway then reads their streams, which takes time. Otherwise it knows only the estimated length of prompts.
        """
        return False

    @abstractmethod
    def plan(self, view: ClusterView) -> Plan:
        """Return the migrations to carry out now. Must be a pure function of ``view``. Runs in a thread of its own."""


class MigrationMeans(Protocol):
    """A migrator's access to the gateway. Methods raise ``NotFound`` for an unknown instance or request."""

    def live(self, instance: str) -> Sequence[RequestView]:
        """The live requests of an instance, oldest first."""

    async def move(self, request: str, destination: str) -> None:
        """Continue a live stream on another instance, whatever its engine. Raises a ``RequestError`` if it stays."""

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        """Read the rest of a stream from ``destination``, to which engines have moved the request themselves.

        ``engine_request`` is the request's id at the engines. Afterwards the stream does not depend on the source.
        Raises a ``RequestError`` if the stream still comes from the source, for example because the destination's
        engine does not offer the rest.
        """

    def moved_by_engine(self, request: str, destination: str) -> None:
        """Count a request at ``destination`` from now on, because engines have moved it and ``join`` has failed."""

    def engine(self, instance: str) -> EngineClient:
        """An HTTP client for the instance's engine."""

    def address(self, instance: str) -> InstanceAddress:
        """The address and ports at which the instance takes commands and requests of other instances."""

    def kv_tokens(self, instance: str) -> int:
        """The size of the instance's KV cache in tokens, for ``RATIO``; 0 if it is not known."""


class Migrator(ABC):
    """Carries out migrations. For each migration, the gateway uses the first configured migrator that can."""

    def prepare(self, means: MigrationMeans) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def why_not(self, migration: Migration, view: ClusterView) -> str:
        """Return the reason why this migrator cannot move requests between the two instances; empty if it can."""

    @abstractmethod
    async def migrate(self, migration: Migration) -> Migrated:
        """Move the requests. The gateway cancels this call after ``rescheduling.migrate_timeout``.

        ``Migrated.refused`` names the requests that stay. Raise any exception if the migration could not begin.
        """
