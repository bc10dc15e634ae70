"""The memory that the owner and its workers share. It is made before the workers are forked."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from zlib import crc32

from enginehouse.app.callers import SharedAccounts, share_accounts
from enginehouse.fleet.workers import TURNS, LoadBoard
from enginehouse.plugin_manager.registry import Registry
from enginehouse.scheduling.ticket_queue import WaitingTicket
from enginehouse.scheduling.waiting_room import OtherRooms

_YIELDS_S: Final = 0.003
"""A worker hears of a free slot within about a millisecond. If it has not taken it by then, it cannot use it."""
_FIELDS: Final = 6
"""The model, as a number that is not 0, the first four parts of the request's ``TicketRank``, and how many wait."""
_SHOWN: Final = TURNS // _FIELDS
"""For so many models, a room shows its first request and how many wait. A 0 comes after the last one."""


class WorkerMemory:
    """The load of backends, and what plugins of ``registry`` count of requests, for a number of ``workers``."""

    def __init__(self, workers: int, registry: Registry) -> None:
        self.board = LoadBoard(workers)
        self._accounts = share_accounts(registry, workers + 1)
        self._changes = memoryview(mmap.mmap(-1, 8)).cast("q")

    def accounts(self, number: int) -> SharedAccounts:
        """What the process with a ``number`` shares; the owner's comes after those of all workers."""
        return SharedAccounts(self._accounts, number, self._changes)


class RoomTurns(OtherRooms):
    """The rooms of the workers beside ``number``.

    ``plan`` has this worker's own room look for slots; ``models`` are those that its requests wait for.
    """

    def __init__(self, board: LoadBoard, number: int, plan: Callable[[], None], models: Mapping[str, int]) -> None:
        self._board = board
        self._number = number
        self._mine = board.turns(number)
        self._others = [board.turns(other) for other in range(board.workers) if other != number]
        self._plan = plan
        self._models = models
        self._timer: asyncio.TimerHandle | None = None

    def show(self, firsts: Sequence[WaitingTicket]) -> None:
        shown = [
            field
            for each in firsts[:_SHOWN]
            for field in (_as_number(each.ticket.replica), *each.rank[:4], self._models[each.ticket.replica])
        ]
        for place, field in enumerate((*shown, 0.0)):
            self._mine[place] = field
        self._board.waiting[self._number] = len(firsts)

    def come_first(self, firsts: Sequence[WaitingTicket], overdue: float) -> bool:
        mine = {_as_number(each.ticket.replica): _turn(each.rank[:4], overdue) for each in firsts}
        first = any(model in mine and _turn(rank, overdue) < mine[model] for model, rank, _ in self._shown())
        if first and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_YIELDS_S, self._look)
        return first

    def waiting_for(self, model: str) -> int:
        number = _as_number(model)
        return sum(int(count) for shown, _, count in self._shown() if shown == number)

    def __bool__(self) -> bool:
        return any(row[0] for row in self._others)

    def _shown(self) -> Iterator[tuple[float, tuple[float, ...], float]]:
        for row in self._others:
            for place in range(0, _SHOWN * _FIELDS, _FIELDS):
                model, *rank, count = row[place : place + _FIELDS]
                if not model:
                    break
                yield model, tuple(rank), count

    def _look(self) -> None:
        self._timer = None
        self._plan()


def _as_number(model: str) -> float:
    return 1.0 + crc32(model.encode())


def _turn(rank: tuple[float, ...], overdue: float) -> tuple[bool, tuple[float, ...]]:
    """As ``WaitingTicket.turn``, without the running number, which is each worker's own."""
    arrived = rank[3]
    return (False, (arrived,)) if arrived <= overdue else (True, rank)
