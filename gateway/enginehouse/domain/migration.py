"""Migrations: the plans of policies and the reports of migrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec


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


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a migration."""

    moved: tuple[str, ...] = ()
    """The ids of the requests that moved."""
    refused: Mapping[str, str] = {}
    """The ids of the requests that stay, with the reasons."""
    found_none: bool = False
    """Whether the source has no request that the migration selects."""
