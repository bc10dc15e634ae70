"""Counts a request from its record.

Not compiled: mypyc reads the fields of a struct slower than Python does.
"""

from __future__ import annotations

from operator import attrgetter

from enginehouse.domain.request_record import RequestRecord
from enginehouse.telemetry.counters import Counters
from enginehouse.telemetry.record import first_answered

_began = attrgetter("began")


def count_request(counters: Counters, record: RequestRecord) -> None:
    """Count a request that had attempts. A continued stream began at its first one."""
    attempts, arrived, ended, events = record.attempts, record.arrived, record.ended, record.events
    last = attempts[-1]
    alone = len(attempts) == 1
    first = last if alone else min(attempts, key=_began)
    answered = last if alone else first_answered(attempts)
    routed, granted, sent = first.began, first.granted, first.sent
    waited = granted - routed if granted is not None else 0.0
    tokens_in, tokens_out, source = record.tokens_in or 0, record.tokens_out, "usage"
    if tokens_out is None:
        tokens_in, tokens_out, source = 0, events - 1, "chunks" if events > 1 else ""  # the last event has no token
    series = counters.series(last.backend, last.model)
    series.count(
        record.status,
        last.reason._value_,  # .value takes 0.2 us in Python 3.10
        ended - arrived,
        routed - arrived,
        sent - arrived - waited if sent is not None else None,
        (waited or first.ended - routed) if first.queued else None,
        tokens_in,
        tokens_out,
        source,
    )
    if answered.sent is not None and (first_byte := answered.first_byte) is not None:
        if answered is not last:
            series = counters.series(answered.backend, answered.model)
        series.count_answer(first_byte - answered.sent, first_byte - arrived, ended - first_byte, events)
