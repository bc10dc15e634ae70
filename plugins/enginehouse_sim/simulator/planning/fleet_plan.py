"""The verdict on fleets, from the figures of their replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from enginehouse_sim.simulator.replay.figures.report import Distribution, Report

_FULL = 0.95
"""The share of the KV cache above which an engine has nothing left."""

Verdict = Literal["yes", "unsure", "no"]
Bottleneck = Literal["room", "memory", "time", ""]
"""``room``: requests are refused. ``memory``: the KV cache is full, and requests are preempted.

``time``: steps take too long, or requests wait.
"""


class Fleet(msgspec.Struct, frozen=True):
    """Engines to try: ``instances`` of each model, with ``settings`` of the gateway."""

    instances: int
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        engines = f"{self.instances} engine" + "s" * (self.instances != 1)
        return ", ".join([engines, *(f"{key}={value}" for key, value in self.settings.items())])


class FleetReplays(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one fleet.

    ``nominal``: one replay for each seed. ``slower``: the first seed, with steps that take longer by the margin.
    """

    fleet: Fleet
    nominal: Sequence[Report]
    slower: Report


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one fleet.

    ``meets``: ``yes`` if the share of requests within all objectives is reached with every seed, and also if each step
    takes longer by the margin; ``unsure`` if only the mean over the seeds reaches it. ``attainment``: this mean;
    ``attainment_least``: with the worst seed; ``attainment_slower``: with longer steps. ``shares``: the share within
    each objective, with the first seed. ``fails_first``: the objective that requests miss first, or ``rejected``;
    empty if they miss none even with longer steps. ``bottleneck``: what those requests lack. Latencies are those of the
    first seed. ``cost_per_hour``, ``cost_per_million_tokens``: in the currency of the price, of tokens in
    and out; ``None`` without a price.
    """

    name: str
    instances: int
    settings: Mapping[str, str]
    meets: Verdict
    attainment: float
    attainment_least: float
    attainment_slower: float
    shares: Mapping[str, float]
    fails_first: str
    bottleneck: Bottleneck
    requests_per_second: float
    output_tokens_per_second: float
    rejected: int
    preemptions: int
    busy: float
    peak_kv_use: float
    ttft_ms: Distribution
    tpot_ms: Distribution
    latency_ms: Distribution
    cost_per_hour: float | None
    cost_per_million_tokens: float | None


class FoundPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts on all fleets.

    ``share``: the share of requests that must be within the ``objectives``, which are in seconds. ``margin``: how much
    longer steps may take than predicted, as a share; ``margin_source``: ``validated``, ``calibrated``, ``given`` or
    ``assumed``. ``answer``: the name of the cheapest fleet that meets the objectives, ``None`` if none surely does.
    """

    objectives: Mapping[str, float]
    share: float
    margin: float
    margin_source: str
    seeds: int
    profile: str
    answer: str | None
    fleets: Sequence[FleetPlan]


def judged(replays: FleetReplays, share: float, price: float | None) -> FleetPlan:
    """The verdict on one fleet. ``price``: of one engine for an hour."""
    first, slower = replays.nominal[0], replays.slower
    attainments = [_attainment(each) for each in replays.nominal]
    mean, least, with_slower = sum(attainments) / len(attainments), min(attainments), _attainment(slower)
    verdict: Verdict = "no"
    if mean >= share:
        verdict = "yes" if min(least, with_slower) >= share else "unsure"
    cost = None if price is None else price * len(first.per_instance)
    return FleetPlan(
        name=replays.fleet.name,
        instances=replays.fleet.instances,
        settings=replays.fleet.settings,
        meets=verdict,
        attainment=round(mean, 4),
        attainment_least=round(least, 4),
        attainment_slower=round(with_slower, 4),
        shares=first.slo_shares,
        fails_first=_fails_first(first) or _fails_first(slower),
        bottleneck=bottleneck(first if mean < share else slower),
        requests_per_second=first.requests_per_second,
        output_tokens_per_second=first.output_tokens_per_second,
        rejected=first.rejected,
        preemptions=first.preemptions,
        busy=round(sum(each.busy for each in first.per_instance) / len(first.per_instance), 3),
        peak_kv_use=max(each.peak_kv_use for each in first.per_instance),
        ttft_ms=first.ttft_ms,
        tpot_ms=first.tpot_ms,
        latency_ms=first.latency_ms,
        cost_per_hour=cost,
        cost_per_million_tokens=_cost_of_tokens(first, cost),
    )


def cheapest(fleets: Sequence[FleetPlan]) -> FleetPlan | None:
    """The fleet with the fewest engines of those that surely meet the objectives; of several, the best one."""
    sure = [fleet for fleet in fleets if fleet.meets == "yes"]
    return min(sure, key=lambda fleet: (fleet.instances, -fleet.attainment), default=None)


def bottleneck(figures: Report) -> Bottleneck:
    """What requests that miss an objective lack."""
    if figures.rejected:
        return "room"
    if figures.preemptions and max(each.peak_kv_use for each in figures.per_instance) >= _FULL:
        return "memory"
    return "time" if _attainment(figures) < 1 else ""


def _attainment(figures: Report) -> float:
    return figures.slo_attainment or 0.0


def _fails_first(figures: Report) -> str:
    """The objective that the fewest requests meet, if any request misses one; rejected ones miss all."""
    total = figures.requests + figures.rejected
    answered = round(figures.requests / total, 3) if total else 0.0
    name, share = min(figures.slo_shares.items(), key=lambda pair: pair[1])
    if share < answered:
        return name
    return "rejected" if figures.rejected else ""


def _cost_of_tokens(figures: Report, cost_per_hour: float | None) -> float | None:
    tokens = figures.input_tokens + figures.output_tokens
    if cost_per_hour is None or not tokens:
        return None
    return round(cost_per_hour * figures.virtual_seconds / 3600 / tokens * 1e6, 4)
