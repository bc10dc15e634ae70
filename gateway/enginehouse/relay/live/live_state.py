"""A live request of a worker, as the worker tells it to the process that shows requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from enginehouse.domain.request_record import AttemptRecord
from enginehouse.domain.route import Reason
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.relay.live.live_request import LiveRequest


class LiveState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``LiveRequest`` tells, under the same names.

    ``number``: by which its worker knows it. ``replica``: where it is, or waits. ``attempts``: all, also the current
    one. ``ticket``: the number of its ticket at the owner, if it has one.
    """

    number: int
    id: bytes
    path: str
    address: str = ""
    caller: str | None = None
    user: str | None = None
    began: float = 0.0
    requirements: dict[str, Any] | None = None
    replica: str | None = None
    model: str | None = None
    reason: Reason = Reason.MATCH
    attempted: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    phase: Phase = Phase.ROUTING
    position: int | None = None
    moves: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    max_tokens: int | None = None
    stays: str | None = None
    ticket: int | None = None
    attempts: tuple[AttemptRecord, ...] = ()


def state_of(number: int, live: LiveRequest, ticket: Callable[[Ticket], int | None], position: int | None) -> LiveState:
    """The state of ``live``; ``ticket`` knows the numbers of tickets, ``position`` is that in the waiting room."""
    route, requirements, attempt = live.route, live.requirements, live.attempt
    now: Sequence[AttemptRecord] = [attempt.facts("live").record()] if attempt is not None else []
    return LiveState(
        number=number,
        id=live.request_id,
        path=live.path,
        address=live.address,
        caller=live.caller,
        user=live.user,
        began=live.began,
        requirements=requirements.told() if requirements is not None else None,
        replica=route.chosen.replica if route is not None else None,
        model=live.model,
        reason=route.reason if route is not None else Reason.MATCH,
        attempted=route.attempted if route is not None else (),
        waits_for=tuple(live.waits_for),
        phase=live.phase,
        position=position,
        moves=live.moves,
        prompt_tokens=live.prompt_tokens,
        output_tokens=live.output_tokens,
        max_tokens=live.max_tokens,
        stays=live.why_not_movable,
        ticket=ticket(live.ticket) if live.ticket is not None else None,
        attempts=(*live.attempts, *now),
    )
