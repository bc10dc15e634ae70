"""What workers have counted, in the counters of their owner."""

from __future__ import annotations

import msgspec

from enginehouse.telemetry import counter_transfer
from enginehouse.telemetry.counter_transfer import CountedTotals
from enginehouse.telemetry.counters import Counters


def counted() -> Counters:
    counters = Counters()
    counters.end_unrouted(401)
    counters.end_unrouted(503)
    series = counters.series("a", "m")
    series.duration.observe(0.2)
    series.duration.note(0.2, "trace")
    keyed = counters.key_counts(series, "k")
    keyed.requests[200, "match"] += 3
    keyed.input_tokens, keyed.cached_tokens = 70, 7
    keyed.from_usage, keyed.from_chunks = 9, 5
    counters.refuse("queue_full", "m")
    counters.retries["a"] += 1
    counters.continued("b", "moved", "tokens", 0.1)
    counters.hedges["a", "won"] += 4
    return counters


def told(counters: Counters) -> CountedTotals:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(counter_transfer.take(counters)), type=CountedTotals)


def test_totals_of_two_workers_add_up() -> None:
    owner = Counters()
    for _ in range(2):
        counter_transfer.add(owner, told(counted()))
    [(backend, model, series)] = owner
    assert (backend, model, owner.unrouted, owner.unrouted_failed) == ("a", "m", 4, 2)
    assert (sum(series.duration.counts), series.duration.total) == (2, 0.4)
    assert [*series.duration.exemplars.values()] == [("trace", 0.2)]
    assert series.keys["k"].requests == {(200, "match"): 6}
    assert (series.keys["k"].input_tokens, series.keys["k"].cached_tokens) == (140, 14)
    assert (series.keys["k"].from_usage, series.keys["k"].from_chunks) == (18, 10)
    assert owner.refused == {("queue_full", "m"): 2}
    assert owner.retries == {"a": 2}
    assert owner.hedges == {("a", "won"): 8}
    assert owner.continuations == {("b", "moved", "tokens"): 2}
    assert sum(owner.gaps["moved"].counts) == 2


def test_the_bound_of_a_worker_is_that_of_its_owner() -> None:
    worker, owner = Counters(max_series=2), Counters(max_series=2)
    for code, model in (("queue_full", "a"), ("load_failed", "b"), ("queue_timeout", "c")):
        worker.refuse(code, model)
    refused = dict(worker.refused)
    assert ("queue_timeout", "other") in refused
    counter_transfer.add(owner, told(worker))
    assert owner.refused == refused


def test_what_was_told_is_not_told_again() -> None:
    counters, owner = counted(), Counters()
    counter_transfer.add(owner, told(counters))
    counter_transfer.add(owner, told(counters))
    assert owner.unrouted == 2
    assert sum(sum(series.duration.counts) for _, _, series in owner) == 1
    assert owner.retries == {"a": 1}
