"""What the gateway counts and logs of a request, made from its record."""

from __future__ import annotations

from enginehouse import AttemptRecord, RequestRecord
from enginehouse.domain.request_facts import AttemptFacts, RequestFacts

_TIMES = ("routed", "granted", "sent", "first_byte")


def facts_of(record: RequestRecord) -> RequestFacts:
    """The facts of which ``record`` would be made. Its own fields go before those of its attempts."""
    facts = RequestFacts([_attempt(each) for each in record.attempts], record.ended)
    _fill(facts, record)
    return facts


def _attempt(record: AttemptRecord) -> AttemptFacts:
    facts = AttemptFacts()
    _fill(facts, record)
    return facts


def _fill(facts: AttemptFacts | RequestFacts, record: AttemptRecord | RequestRecord) -> None:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name != "attempts":
            setattr(facts, name, 0.0 if value is None and name in _TIMES else value)
