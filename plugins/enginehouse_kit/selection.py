"""Which requests of an instance move: Llumnix's rules and orders, over ``RequestView``.

The same function serves the gateway and the simulated engine's llumlet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from enginehouse.rescheduling import RequestView
from enginehouse_kit.rescheduling import Migration

__all__ = ["MIGRATION_ORDERS", "MIGRATION_RULES", "migration_budget", "select_requests"]

Requests = Sequence[RequestView]
_Phases = Callable[[Requests, Requests], Sequence[Requests]]


def _length(request: RequestView) -> int:
    return request.num_tokens


_PHASES: Mapping[str, _Phases] = {
    "LCR": lambda running, waiting: [running[::-1]],
    "FCR": lambda running, waiting: [running],
    "LR": lambda running, waiting: [sorted(running, key=_length, reverse=True)],
    "SR": lambda running, waiting: [sorted(running, key=_length)],
    "FCW": lambda running, waiting: [waiting],
    "FCWSR": lambda running, waiting: [waiting, sorted(running, key=_length)],
}
"""The phases of each order, from the running and the waiting requests."""

_COSTS: Mapping[str, Callable[[RequestView], int]] = {
    "NUM_REQ": lambda request: 1,
    "TOKEN": _length,
    "RATIO": _length,
}

MIGRATION_ORDERS = tuple(_PHASES)
"""Last or first running by arrival, longest or shortest running, first waiting, or these and then shortest running."""

MIGRATION_RULES = tuple(_COSTS)
"""The units of a budget: requests, tokens, or a share of the tokens that the KV cache holds."""


def migration_budget(rule: str, value: float, total_tokens: int) -> int:
    """Return the budget for ``select_requests``. ``total_tokens`` is the size of the KV cache, for ``RATIO``."""
    return int(value * total_tokens) if rule == "RATIO" else int(value)


def select_requests(requests: Requests, rule: str, order: str, budget: int) -> list[str]:
    """Return the ids of requests to move, in order, until they cost ``budget``, in requests or tokens by ``rule``.

    ``requests`` are in the order of arrival, waiting ones in that of the queue. As in Llumnix, running requests without
    output stay, and so does a request that alone costs more than the budget; the last one selected may exceed it. A
    request with ``stays`` is not selected. Raises ``KeyError`` for an unknown rule or order.
    """
    movable = [request for request in requests if request.stays is None]
    if rule == "NUM_REQ" and budget == Migration.EVERYTHING:
        return [request.id for request in sorted(movable, key=lambda request: not request.running)]
    cost = _COSTS[rule]
    running = [request for request in movable if request.running and request.output_tokens]
    waiting = [request for request in movable if not request.running]
    selected: list[str] = []
    for phase in _PHASES[order](running, waiting):
        spent = 0
        for request in phase:
            if spent >= budget:
                break
            if cost(request) <= budget:
                selected.append(request.id)
                spent += cost(request)
        budget -= spent
    return selected
