"""Which requests migrate: Llumnix's migration types and request policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

EVERYTHING = -1
"""The ``num_reqs`` that means all requests, in any order."""


class MigrationCandidate(NamedTuple):
    """A request that may migrate; ``num_tokens`` is the length of its prompt and outputs."""

    request_id: str
    num_tokens: int
    num_outputs: int = 0


Requests = Sequence[MigrationCandidate]
_Phases = Callable[[Requests, Requests], Sequence[Requests]]


def _length(candidate: MigrationCandidate) -> int:
    return candidate.num_tokens


ORDERS: Mapping[str, _Phases] = {
    "LCR": lambda running, waiting: [running[::-1]],
    "FCR": lambda running, waiting: [running],
    "LR": lambda running, waiting: [sorted(running, key=_length, reverse=True)],
    "SR": lambda running, waiting: [sorted(running, key=_length)],
    "FCW": lambda running, waiting: [waiting],
    "FCWSR": lambda running, waiting: [waiting, sorted(running, key=_length)],
}
"""The phases of each order, from the running and the waiting requests, both in order of arrival."""

_COSTS: Mapping[str, Callable[[MigrationCandidate], int]] = {
    "NUM_REQ": lambda candidate: 1,
    "TOKEN": _length,
    "RATIO": _length,
}
RULES = tuple(_COSTS)


def select(running: Requests, waiting: Requests, rule: str, order: str, budget: int) -> list[str]:
    """The requests to migrate, in order, until their costs reach ``budget``: requests for ``NUM_REQ``, else tokens.

    As in Llumnix, running requests without outputs stay, and so does a request that alone costs more than the budget.
    The last one chosen may exceed it.
    """
    if rule == "NUM_REQ" and budget == EVERYTHING:
        return [candidate.request_id for candidate in (*running, *waiting)]
    movable = [candidate for candidate in running if candidate.num_outputs]
    chosen: list[str] = []
    for phase in ORDERS[order](movable, waiting):
        spent = 0
        for candidate in phase:
            cost = _COSTS[rule](candidate)
            if spent >= budget:
                break
            if cost <= budget:
                chosen.append(candidate.request_id)
                spent += cost
        budget -= spent
    return chosen
