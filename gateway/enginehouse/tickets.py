"""Scheduling and swapping: requests that wait for a replica, and what makes room for one."""

from __future__ import annotations

from enginehouse.domain.ticket import Phase, SwapDone, SwapId, Ticket
from enginehouse.interfaces.schedulers import CallerTurn, CallerTurns, Effects, SchedulingLimits, Waiting
from enginehouse.interfaces.swappers import HostedReplica, HostFacts, SwapPlan
from enginehouse.scheduling.ticket_queue import ReplicaLine, TicketAge, TicketQueue, WaitingTicket

__all__ = [
    "CallerTurn",
    "CallerTurns",
    "Effects",
    "HostFacts",
    "HostedReplica",
    "Phase",
    "ReplicaLine",
    "SchedulingLimits",
    "SwapDone",
    "SwapId",
    "SwapPlan",
    "Ticket",
    "TicketAge",
    "TicketQueue",
    "Waiting",
    "WaitingTicket",
]
