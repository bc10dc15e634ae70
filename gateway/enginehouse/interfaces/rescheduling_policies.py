"""Rescheduling policies: decide which live requests move."""

from __future__ import annotations

from abc import ABC, abstractmethod

from enginehouse.config.scheduling import ReschedulingSettings
from enginehouse.domain.instance import ClusterView, InstanceView, Plan


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
