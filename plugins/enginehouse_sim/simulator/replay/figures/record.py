"""The record of a replay, in little memory: three numbers for each request, and counts of all else."""

from __future__ import annotations

from array import array
from collections import Counter

import msgspec

from enginehouse import ConfigError, parse_duration
from enginehouse_sim.simulator.replay.figures.answer import AnswerRecord, InstanceRecord


class Slo(msgspec.Struct, frozen=True):
    """The most seconds to the first token, between tokens on average, and to the last; ``None``: no limit."""

    ttft: float | None = None
    tpot: float | None = None
    latency: float | None = None

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read objectives such as ``ttft=2s,tpot=50ms``. Raises ``ConfigError``."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            if name not in cls.__struct_fields__:
                known = ", ".join(cls.__struct_fields__)
                raise ConfigError(f"has no figure {name!r}", key="--slo", remedy=f"it takes {known}: ttft=2s,tpot=50ms")
            try:
                limits[name] = parse_duration(value)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}", key="--slo") from None
        return cls(**limits)

    def is_met(self, ttft: float, tpot: float, latency: float) -> bool:
        """Whether a request with these figures is within all limits."""
        return (
            (self.ttft is None or ttft <= self.ttft)
            and (self.tpot is None or tpot <= self.tpot)
            and (self.latency is None or latency <= self.latency)
        )


_SAMPLES = 600


class Moment(msgspec.Struct, frozen=True, gc=False):
    """The state of all engines at one time, in seconds.

    ``running`` and ``waiting`` count the requests at engines, ``queued`` those in the gateway's queues. ``busiest``:
    the most requests at one engine. ``kv_use``: the mean share of blocks in use, 0 to 1. ``preemptions``: those so far.
    """

    time: float
    running: int
    waiting: int
    queued: int
    busiest: int
    kv_use: float
    preemptions: int


class Record:
    """The requests, steps and engines of a replay.

    ``times_to_first``, ``means`` (the mean gap between tokens) and ``durations`` have a number of seconds for each
    answered request; a request with one token has no mean. ``gaps`` counts the gaps between two outputs of a request,
    by microseconds. ``move_gaps``: the gaps in which requests moved, in seconds. ``failed_migrations``: the number of
    commands that moved none of the selected requests. ``empty_migrations``: those that found none to move.
    ``retried``, ``continued`` and ``hedged`` count how often requests were sent again, streams were continued elsewhere
    after a break, and second replicas were asked. ``broken``: the number of answers that had begun and did not become
    whole.
    ``rejected``: the number of refused requests, by error code. ``attained``: the number of requests within ``slo``.
    ``ended``: the virtual seconds, and ``real_seconds`` the real ones, that the replay took.
    """

    def __init__(self, slo: Slo | None = None) -> None:
        self.slo = slo
        self.instances: list[InstanceRecord] = []
        self.requests = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.rejected: Counter[str] = Counter()
        self.attained = 0
        self.times_to_first = array("d")
        self.means = array("d")
        self.durations = array("d")
        self.gaps: dict[int, int] = {}
        self.moments = Moments()
        self.swaps = 0
        self.move_gaps = array("d")
        self.failed_migrations = self.empty_migrations = 0
        self.retried = self.continued = self.hedged = self.broken = 0
        self.ended = 0.0
        self.real_seconds = 0.0

    def reject(self, code: str) -> None:
        """Count a request that the gateway or its engine refused."""
        self.rejected[code] += 1

    def finish(self, request: AnswerRecord) -> None:
        """Count a request whose answer is complete."""
        first, duration = request.first_token - request.arrival, request.last_token - request.arrival
        self.requests += 1
        self.input_tokens += request.input_length
        self.cached_tokens += request.cached_tokens
        self.output_tokens += request.output_tokens
        self.times_to_first.append(first)
        self.durations.append(duration)
        mean = 0.0
        if request.output_tokens > 1:
            mean = (request.last_token - request.first_token) / (request.output_tokens - 1)
            self.means.append(mean)
        if self.slo is not None and self.slo.is_met(first, mean, duration):
            self.attained += 1


class Moments:
    """Samples of the state over time. At ``_SAMPLES`` of them, every second one goes and the interval doubles."""

    def __init__(self) -> None:
        self.samples: list[Moment] = []
        self.due = 0.0
        self._every = 0.05

    def add(self, moment: Moment) -> None:
        """Add a sample. The next one is ``due`` later."""
        self.samples.append(moment)
        if len(self.samples) >= _SAMPLES:
            self._every *= 2
            del self.samples[1::2]
        self.due = moment.time + self._every
