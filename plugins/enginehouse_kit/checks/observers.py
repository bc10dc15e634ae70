"""The conformance check of observers: every event, with all kinds of facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

from enginehouse import Exporter, Health, Observer, ReplicaState, Route
from enginehouse.callers import AuditEntry
from enginehouse.errors import LoadFailed
from enginehouse.records import RequestContents, TelemetrySettings
from enginehouse.routing_facts import Reason
from enginehouse.tickets import SwapDone, SwapId
from enginehouse_kit.expect import expect, expect_status, warn_if_slow, within
from enginehouse_kit.fake_asides import FakeAsides
from enginehouse_kit.fake_figures import FakeFigures
from enginehouse_kit.fake_service_gateway import FakeServiceGateway
from enginehouse_kit.make import candidate, request_record, requirements
from enginehouse_kit.rescheduling import Migrated, Migration

Event = tuple[str, tuple[Any, ...]]
_STOP_S = 5.0


def check_observer(factory: Callable[[], Observer]) -> None:
    """Check that every event returns nothing, raises nothing and changes none of its arguments.

    The events come between ``start`` and ``stop``, which must return within 5 seconds. An observer that has one of
    these gets an event loop, so call the check in a synchronous test. An ``Exporter`` must sample a share from 0 to 1,
    whatever ``[telemetry]`` says, or nothing. ``at_end``, ``streams_wait`` and ``with_contents`` must return what can
    be called, or nothing. Figures must be of its ``metrics``, with a text for each label. ``status`` must be for JSON.
    """
    it, asides = factory(), FakeAsides()
    it.use_figures(FakeFigures(it.metrics))
    it.use_aside(asides)
    if isinstance(it, Exporter):
        for settings in (TelemetrySettings(), TelemetrySettings(traces="off"), TelemetrySettings(sample_ratio=0.5)):
            sampling = it.sampling(settings)
            expect(
                sampling is None or 0 <= sampling[0] <= 1, f"sampling must have a ratio from 0 to 1, got {sampling!r}"
            )
    elif type(it).start is not Observer.start or type(it).stop is not Observer.stop:
        asyncio.run(_started_and_stopped(it, asides))
        return
    _check_events(it, asides)


async def _started_and_stopped(it: Observer, asides: FakeAsides) -> None:
    works = asyncio.ensure_future(_finished(it.start()))
    await asyncio.sleep(0)
    _check_events(it, asides)
    works.cancel()
    with suppress(asyncio.CancelledError):
        await works
    await within(_STOP_S, "stop", it.stop())


async def _finished(made: Awaitable[None] | None) -> None:
    if made is not None:
        await made


def _check_events(it: Observer, asides: FakeAsides) -> None:
    for method in (it.at_end, it.streams_wait):
        wanted = method(FakeServiceGateway())
        expect(
            wanted is None or callable(wanted),
            f"{method.__name__} must return what can be called, or None, got {wanted!r}",
        )
    _check_contents(it)
    for name, facts in events():
        before = deepcopy(facts)
        returned: Any = getattr(it, name)(*facts)
        expect(returned is None, f"{name} must return nothing, got {returned!r}")
        expect(_same(facts, before), f"{name} must not change its arguments")
        warn_if_slow(name, lambda: getattr(it, name)(*facts))  # noqa: B023
    for _ in range(asides.live):  # what they send then may never end
        asides.end(request_record("b"))
    expect_status(it.status())


def _check_contents(it: Observer) -> None:
    read: Any = it.with_contents(FakeServiceGateway())
    if read is None:
        return
    expect(callable(read), f"with_contents must return what can be called, or None, got {read!r}")
    contents = RequestContents("/v1/chat/completions", [(b"authorization", b"Bearer key")], b'{"model":"a"}')
    for record in (request_record("a"), request_record(None)):
        facts = (record, requirements("a"), contents)
        before = deepcopy(facts)
        returned = read(*facts)
        expect(returned is None, f"what with_contents returns must return nothing, got {returned!r}")
        expect(_same(facts, before), "what with_contents returns must not change its arguments")
        warn_if_slow("what with_contents returns", lambda: read(*facts))  # noqa: B023


def events() -> Iterator[Event]:
    """Every event of an observer, in the order of a request's life."""
    chosen = candidate("gpu-1")
    replica = chosen.replica
    for reason in Reason:
        route = Route(chosen.model, chosen, reason, (chosen.model,))
        yield "routed", ("request-1", requirements(extra={"x": "y"}), route)
    yield "swap_started", (replica, ())
    yield "swap_started", (replica, ("a@b", "c@d"))
    for error in (None, LoadFailed("out of memory")):
        yield "swap_done", (SwapDone(swap=SwapId(1), target=replica, error=error),)
    for now in ReplicaState:
        yield "replica_state", (replica, now)
    yield "replicas_changed", ()
    for health in Health:
        yield "backend_health", ("gpu-1", health)
    yield "hung", ("gpu-1", "It serves nobody")
    for draining in (True, False):
        yield "backend_draining", ("gpu-1", draining)
    yield "queue_changed", ()
    for state, detail in (("reloading", ""), ("ready", "http://127.0.0.1:8080"), ("stopping", "")):
        yield "serving", (state, detail)
    yield "moved", ("request-1", "gpu-1", "gpu-2", 12.5)
    moved = Migration(policy="load", source="gpu-1", destination="gpu-2", rule="NUM_REQ", order="SR", value=1)
    yield "migrated", (moved, Migrated(moved=("request-1",), refused={"request-2": "it has just moved"}))
    yield "operated", (AuditEntry(1.0, "ops", "127.0.0.1", "POST /api/reload", 200),)
    yield "finished", (request_record(),)
    yield "finished", (request_record(caller="team-a", user="ann", stream=True, tokens_cached=8, events=35, moves=1),)
    yield "finished", (request_record(status=502, outcome="upstream_error", code="upstream_error", tokens_out=None),)
    yield "finished", (request_record(None),)
    yield "finished", (request_record(None, status=401, outcome="unauthorized", code="unauthorized", asked=None),)


def _same(facts: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Whether nothing changed. Exceptions have no equality; their text is compared."""
    return repr(facts) == repr(before)
