"""Makes the records of what the gateway did.

Not compiled: mypyc reads the fields of a struct slower than Python does.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request_record import AttemptRecord, RequestRecord
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route

_began = attrgetter("began")


def attempt_record(
    route: Route,
    driver: str,
    outcome: str,
    why: str,
    status: int,
    queued: bool,
    began: float,
    granted: float,
    sent: float,
    first_byte: float,
    ended: float,
) -> AttemptRecord:
    """The record of an attempt along ``route``. Times are 0 for steps that were not reached."""
    chosen = route.chosen
    return AttemptRecord(
        chosen.backend,
        driver,
        chosen.replica,
        chosen.model,
        route.reason,
        route.attempted,
        outcome,
        why,
        status,
        queued,
        began,
        granted or None,
        sent or None,
        first_byte or None,
        ended,
        route.details,
    )


def request_record(
    id: str,
    method: str,
    path: str,
    status: int,
    outcome: str,
    error: RequestError | None,
    arrived: float,
    ended: float,
    caller: str | None,
    user: str | None,
    requirements: Requirements | None,
    attempts: Sequence[AttemptRecord],
    moves: int,
    bytes_in: int,
    answer: AnswerSize,
    trace_id: str | None,
) -> RequestRecord:
    """The record of a request with these attempts. ``requirements``: ``None`` if it was not read."""
    asked = model = backend = driver = routed = granted = sent = first_byte = None
    if len(attempts) == 1:
        [last] = attempts
        model, backend, driver, routed = last.model, last.backend, last.driver, last.began
        granted, sent, first_byte = last.granted, last.sent, last.first_byte
    elif attempts:
        last = attempts[-1]
        model, backend, driver = last.model, last.backend, last.driver
        routed, granted, sent, first_byte = _steps(attempts)
    stream = False
    if requirements is not None:
        asked, stream = requirements.model, requirements.stream
    bytes_out, events, tokens = answer
    return RequestRecord(
        id,
        method,
        path,
        status,
        outcome,
        arrived,
        ended,
        caller,
        user,
        asked,
        model,
        backend,
        driver,
        error.code if error is not None else None,
        error.message if error is not None else "",
        stream,
        tuple(attempts),
        moves,
        routed,
        granted,
        sent,
        first_byte,
        tokens.input if tokens is not None else None,
        tokens.cached if tokens is not None else None,
        tokens.output if tokens is not None else None,
        bytes_in,
        bytes_out,
        events,
        trace_id,
    )


def _steps(attempts: Sequence[AttemptRecord]) -> tuple[float, float | None, float | None, float | None]:
    """When several attempts were first routed, granted and sent, and when the answer began that the client got."""
    in_order = sorted(attempts, key=_began)
    granted = (each.granted for each in in_order if each.granted is not None)
    sent = (each.sent for each in in_order if each.sent is not None)
    return in_order[0].began, next(granted, None), next(sent, None), first_answered(attempts).first_byte


def first_answered(attempts: Sequence[AttemptRecord]) -> AttemptRecord:
    """The attempt that gave the client its first byte, whichever others continued its stream; else the last one."""
    return next((each for each in attempts if each.first_byte and each.outcome != "answered"), attempts[-1])


class SwapRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One swap. Times are in seconds of the gateway's clock. ``outcome``: ``ready`` or ``failed``."""

    target: str
    evicted: tuple[str, ...]
    began: float
    ended: float
    outcome: str


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The tokens of a request, as its engine counted them. ``cached``: of the prompt, if the engine says so."""

    input: int
    output: int
    cached: int | None = None


AnswerSize = tuple[int, int, Tokens | None]
"""The bytes, the events and, if the engine counted them, the tokens of an answer, as far as the client got it."""
NO_ANSWER: AnswerSize = (0, 0, None)
