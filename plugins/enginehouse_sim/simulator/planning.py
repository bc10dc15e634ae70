"""Replays the traffic on every fleet, judges the fleets by the figures, and prints the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse import ConfigError
from enginehouse_sim.simulator.replay.gateway_replay import Setting
from enginehouse_sim.simulator.replay.report import Distribution, Report, Slo
from enginehouse_sim.simulator.replay.variants import Traffic, Variant, reseeded, run_variants
from enginehouse_sim.simulator.steps.profile import Profile

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


_OF_REPORT = (
    *("requests_per_second", "output_tokens_per_second", "rejected", "preemptions"),
    *("ttft_ms", "tpot_ms", "latency_ms"),
)


def judged(fleet: Fleet, reports: Sequence[Report], share: float, price: float | None) -> FleetPlan:
    """The verdict on one fleet. ``reports``: one for each seed, and one of the first seed with longer steps.

    ``price``: of one engine for an hour.
    """
    *nominal, slower = reports
    first, attainments = nominal[0], [_attainment(each) for each in nominal]
    mean, least, with_slower = sum(attainments) / len(attainments), min(attainments), _attainment(slower)
    verdict: Verdict = "no"
    if mean >= share:
        verdict = "yes" if min(least, with_slower) >= share else "unsure"
    cost = None if price is None else price * len(first.per_instance)
    return FleetPlan(
        name=fleet.name,
        instances=fleet.instances,
        settings=fleet.settings,
        meets=verdict,
        attainment=round(mean, 4),
        attainment_least=round(least, 4),
        attainment_slower=round(with_slower, 4),
        shares=first.slo_shares,
        fails_first=_fails_first(first) or _fails_first(slower),
        bottleneck=bottleneck(first if mean < share else slower),
        **{name: getattr(first, name) for name in _OF_REPORT},
        busy=round(sum(each.busy for each in first.per_instance) / len(first.per_instance), 3),
        peak_kv_use=max(each.peak_kv_use for each in first.per_instance),
        cost_per_hour=cost,
        cost_per_million_tokens=_cost_of_tokens(first, cost),
    )


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


ASSUMED_MARGIN = 0.25
"""How much longer steps may take if nobody has compared the profile with an engine."""


class CapacityQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What to plan for. ``setting`` has the objectives, and the engines with their profile.

    ``share``: of the requests, to be within all objectives. ``price``: of one engine for an hour. ``margin``: how much
    longer steps may take than predicted; ``None`` for the profile's accuracy. ``seeds``: how often the traffic is
    made or shuffled again.
    """

    traffic: Traffic
    setting: Setting
    fleets: Sequence[Fleet]
    share: float = 0.99
    price: float | None = None
    margin: float | None = None
    seeds: int = 3


def fleets_of(instances: Sequence[int], choices: Sequence[tuple[str, Sequence[str]]]) -> list[Fleet]:
    """All combinations of numbers of engines and values of keys."""
    keys = [key for key, _ in choices]
    combinations = list(product(*(values for _, values in choices)))
    return [Fleet(number, dict(zip(keys, values, strict=True))) for number in instances for values in combinations]


def planned(
    question: CapacityQuestion, profile: Profile, on_progress: Callable[[float], None], jobs: int | None = None
) -> FoundPlan:
    """Replay the traffic on all fleets, and judge them. Raises ``EnginehouseError``."""
    slo = question.setting.slo
    if slo is None or slo == Slo():
        raise ConfigError("a plan needs objectives", key="--slo", remedy="for example ttft=1s,tpot=15ms")
    margin, source = _margin(question, profile)
    variants = [variant for fleet in question.fleets for variant in _variants(question, fleet, margin)]
    reports = run_variants(variants, on_progress, jobs)
    each = question.seeds + 1
    verdicts = [
        judged(fleet, reports[at * each : (at + 1) * each], question.share, question.price)
        for at, fleet in enumerate(question.fleets)
    ]
    sure = [fleet for fleet in verdicts if fleet.meets == "yes"]
    answer = min(sure, key=lambda fleet: (fleet.instances, -fleet.attainment), default=None)
    return FoundPlan(
        objectives={name: value for name, value in msgspec.structs.asdict(slo).items() if value is not None},
        share=question.share,
        margin=round(margin, 4),
        margin_source=source,
        seeds=question.seeds,
        profile=profile.description,
        answer=None if answer is None else answer.name,
        fleets=verdicts,
    )


def _margin(question: CapacityQuestion, profile: Profile) -> tuple[float, str]:
    if question.margin is not None:
        return question.margin, "given"
    accuracy = profile.accuracy
    if accuracy is None or accuracy.margin is None:
        return ASSUMED_MARGIN, "assumed"
    return accuracy.margin, "calibrated" if accuracy.margin == accuracy.step else "validated"


def _variants(question: CapacityQuestion, fleet: Fleet, margin: float) -> list[Variant]:
    gateway = msgspec.structs.replace(
        question.setting.gateway,
        instances=fleet.instances,
        values=(*question.setting.gateway.values, *fleet.settings.items()),
    )
    made = []
    for seed in range(question.seeds):
        seeded = msgspec.structs.replace(gateway, seed=gateway.seed + seed)
        setting = msgspec.structs.replace(question.setting, gateway=seeded)
        made.append(Variant(fleet.name, setting, reseeded(question.traffic, seed)))
    core = question.setting.core
    slow_core = msgspec.structs.replace(core, speedup=core.speedup / (1 + margin))
    slow = msgspec.structs.replace(question.setting, gateway=gateway, core=slow_core)
    return [*made, Variant(fleet.name, slow, question.traffic)]


_MARGINS = {
    "validated": "the largest error of a median when the profile was compared with its engine",
    "calibrated": "the error of probes when the profile was calibrated; sim validate compares whole replays",
    "given": "as given",
    "assumed": "an assumption: nobody has compared the profile with an engine, see sim validate",
}


def print_plan(plan: FoundPlan) -> None:
    """Print the verdicts as a table, then the answer."""
    console = Console()
    table = Table("")
    for fleet in plan.fleets:
        table.add_column(fleet.name.replace(", ", "\n").replace("=", "\n"), justify="right")
    for name, cells in _rows(plan):
        table.add_row(name, *cells)
    console.print(table)
    console.print(f"profile: {plan.profile}")
    console.print(
        f"sure: {plan.seeds} seeds, and steps that take {plan.margin:.0%} longer ({_MARGINS[plan.margin_source]})"
    )
    console.print(_answer(plan))


def _rows(plan: FoundPlan) -> Iterator[tuple[str, Sequence[str]]]:
    """The name of each figure, and its value for each fleet."""
    fleets = plan.fleets

    def percent(value_of: Callable[[FleetPlan], float]) -> Sequence[str]:
        return [f"{100 * value_of(fleet):.1f}" for fleet in fleets]

    yield "meets the objectives", [fleet.meets for fleet in fleets]
    yield "in time, %", percent(lambda fleet: fleet.attainment)
    yield "with the worst seed, %", percent(lambda fleet: fleet.attainment_least)
    yield f"with {plan.margin:.0%} slower steps, %", percent(lambda fleet: fleet.attainment_slower)
    for name in plan.objectives:
        yield f"{name} in time, %", percent(lambda fleet, name=name: fleet.shares[name])  # type: ignore[misc]
    yield "ttft p99, ms", [f"{fleet.ttft_ms.p99:,.1f}" for fleet in fleets]
    yield "tpot p99, ms", [f"{fleet.tpot_ms.p99:,.1f}" for fleet in fleets]
    yield "busy, %", percent(lambda fleet: fleet.busy)
    yield "fails first", [fleet.fails_first for fleet in fleets]
    yield "lacks", [fleet.bottleneck for fleet in fleets]
    if fleets[0].cost_per_hour is not None:
        yield "price of an hour", [f"{fleet.cost_per_hour:,.2f}" for fleet in fleets]
        yield "of a million tokens", [_price(fleet.cost_per_million_tokens) for fleet in fleets]


def _price(price: float | None) -> str:
    return "" if price is None else f"{price:,.3f}"


def _answer(plan: FoundPlan) -> str:
    wanted = f"has {plan.share:.1%} of all requests within the objectives"
    if plan.answer is not None:
        return f"The smallest fleet that surely {wanted}: [bold]{plan.answer}[/bold]"
    if any(fleet.meets == "unsure" for fleet in plan.fleets):
        return f"No fleet surely {wanted}. Try more engines, or a profile that is closer to its engine."
    return f"No fleet {wanted}. Try more engines."
