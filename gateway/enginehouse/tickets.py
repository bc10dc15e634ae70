"""Scheduling and swapping: requests that wait for a replica, and what makes room for one."""

from __future__ import annotations

from enginehouse.domain.ticket import Phase as Phase
from enginehouse.domain.ticket import SwapDone as SwapDone
from enginehouse.domain.ticket import SwapId as SwapId
from enginehouse.domain.ticket import Ticket as Ticket
from enginehouse.interfaces.schedulers import CallerTurn as CallerTurn
from enginehouse.interfaces.schedulers import CallerTurns as CallerTurns
from enginehouse.interfaces.schedulers import Effects as Effects
from enginehouse.interfaces.schedulers import SchedulingLimits as SchedulingLimits
from enginehouse.interfaces.schedulers import Waiting as Waiting
from enginehouse.interfaces.swappers import HostedReplica as HostedReplica
from enginehouse.interfaces.swappers import HostFacts as HostFacts
from enginehouse.interfaces.swappers import SwapPlan as SwapPlan
from enginehouse.scheduling.ticket_queue import ReplicaLine as ReplicaLine
from enginehouse.scheduling.ticket_queue import TicketAge as TicketAge
from enginehouse.scheduling.ticket_queue import TicketQueue as TicketQueue
from enginehouse.scheduling.ticket_queue import WaitingTicket as WaitingTicket
