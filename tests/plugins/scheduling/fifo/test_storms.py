"""Random storms in virtual time: how often models are loaded, and how long anybody waits."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginehouse import Swapper
from enginehouse.tickets import HostedReplica, SwapId, Ticket
from enginehouse_kit.testing import AtMost, FakeEffects, OneAtATime
from enginehouse_scheduling.fifo import Fifo

MODELS = "abcdefgh"
TICK_S = 0.25
LASTS_S = 150.0
"""How long constant traffic goes on."""


class Storm:
    """Requests arrive at their times, loads and answers take their times, and in the end nothing is left.

    ``loads``: the times of their starts, by model. ``waits``: how long each request waited, in seconds. Without
    ``ticks``, only events let requests go on, so a forgotten one shows.
    """

    def __init__(self, host: FakeEffects, load_s: float, serve_s: float, *, ticks: bool) -> None:
        self.host = host
        self._ticks = ticks
        self.loads: dict[str, list[float]] = {}
        self.waits: dict[Ticket, float] = {}
        self._load_s = load_s
        self._serve_s = serve_s
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._seen: set[SwapId] = set()
        self._ticking = False

    def blow(self, arrivals: Sequence[tuple[float, str, int]]) -> None:
        """``arrivals``: time, model and priority of each request."""
        for time, model, priority in arrivals:
            self._at(time, partial(self.host.request, model, priority))
        while self._due:
            self.host.time, _, event = heapq.heappop(self._due)
            event()
            self._look()
        assert not self.host.waiting
        assert not self.host.refused

    def _look(self) -> None:
        now = self.host.time
        for swap in self.host.swaps.values():
            if swap.id not in self._seen:
                self._seen.add(swap.id)
                self.loads.setdefault(swap.target, []).append(now)
                self._at(now + self._load_s, partial(self.host.swap_done, swap.target))
        for ticket in self.host.granted[len(self.waits) :]:
            self.waits[ticket] = now - ticket.arrived
            self._at(now + self._serve_s, partial(self.host.serve_done, ticket.replica))
        if self._ticks and self.host.waiting and not self._ticking:
            self._ticking = True
            self._at(now + TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.host.pass_time(0.0)

    def _at(self, time: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._due, (time, next(self._order), event))


def storm(
    *,
    swapper: Swapper,
    load_s: float,
    serve_s: float,
    ready: Sequence[str] = (),
    concurrency: int = 0,
    max_wait: float = 0.0,
    max_loads: int = 1,
) -> Storm:
    limits = {"queue_timeout": 0.0, "max_wait": max_wait, "max_loads": max_loads}
    hosted = [HostedReplica(replica=model, model=model, concurrency=concurrency) for model in MODELS]
    host = FakeEffects(Fifo(), hosted, ready=ready, swapper=swapper, **limits)
    return Storm(host, load_s, serve_s, ticks=max_wait > 0)


@settings(max_examples=150)
@given(
    asked=st.lists(st.tuples(st.floats(0.0, 4.9), st.sampled_from(MODELS), st.integers(0, 2)), min_size=1, max_size=60),
    places=st.integers(1, 3),
    ready=st.sets(st.sampled_from(MODELS), max_size=3),
    serve_s=st.sampled_from([0.1, 1.0, 20.0]),
    concurrency=st.integers(0, 2),
    max_loads=st.integers(0, 2),
)
def test_what_comes_before_the_first_load_has_ended_loads_each_model_once(
    asked: list[tuple[float, str, int]],
    places: int,
    ready: set[str],
    serve_s: float,
    concurrency: int,
    max_loads: int,
) -> None:
    loaded = sorted(ready)[:places]
    weather = storm(
        swapper=AtMost(places),
        load_s=5.0,
        serve_s=serve_s,
        ready=loaded,
        concurrency=concurrency,
        max_loads=max_loads,
    )
    weather.blow(asked)
    wanted = {model for _, model, _ in asked}
    assert {model: len(times) for model, times in weather.loads.items()} == dict.fromkeys(weather.loads, 1)
    assert wanted - set(loaded) <= set(weather.loads) <= wanted


@pytest.mark.long
@settings(max_examples=150)
@given(
    asked=st.lists(st.tuples(st.floats(0.0, 8.0), st.sampled_from(MODELS)), min_size=1, max_size=60),
    serve_s=st.sampled_from([0.1, 3.0, 20.0]),
    concurrency=st.integers(0, 2),
)
def test_no_storm_takes_more_loads_than_one_request_after_the_other_would(
    asked: list[tuple[float, str]], serve_s: float, concurrency: int
) -> None:
    wanted = [model for _, model in asked]
    times = itertools.accumulate(gap for gap, _ in asked)
    weather = storm(swapper=OneAtATime(), load_s=5.0, serve_s=serve_s, concurrency=concurrency)
    weather.blow([(time, model, 0) for time, model in zip(times, wanted, strict=True)])
    changes = sum(1 for _ in itertools.groupby(wanted))
    assert len(set(wanted)) <= sum(map(len, weather.loads.values())) <= changes


@pytest.mark.long
@settings(max_examples=15)
@given(
    models=st.integers(2, 4),
    max_wait=st.sampled_from([5.0, 12.0, 30.0]),
    load_s=st.sampled_from([0.5, 2.0]),
    serve_s=st.sampled_from([1.0, 3.0]),
    every=st.sampled_from([0.3, 0.7]),
)
def test_under_constant_traffic_everybody_is_served_in_time_and_no_model_is_loaded_more_often_than_that_takes(
    models: int, max_wait: float, load_s: float, serve_s: float, every: float
) -> None:
    weather = storm(swapper=OneAtATime(), load_s=load_s, serve_s=serve_s, max_wait=max_wait)
    weather.blow([(number * every, model, 0) for number in range(int(LASTS_S / every)) for model in MODELS[:models]])
    in_turn = models * (load_s + serve_s + TICK_S)
    assert max(weather.waits.values()) <= max_wait + in_turn
    for times in weather.loads.values():
        assert all(after - before >= max_wait for before, after in itertools.pairwise(times) if after < LASTS_S)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_abcabc_loads_each_model_once(places: int) -> None:
    weather = storm(swapper=AtMost(places), load_s=5.0, serve_s=1.0)
    weather.blow([(number / 10, model, 0) for number, model in enumerate("abcabc")])
    assert Counter({model: len(times) for model, times in weather.loads.items()}) == Counter("abc")
