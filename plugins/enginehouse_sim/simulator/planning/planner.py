"""Replays the traffic on every fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.planning.fleet_plan import Fleet, FleetReplays, FoundPlan, cheapest, judged
from enginehouse_sim.simulator.replay.figures.curves import Curves
from enginehouse_sim.simulator.replay.figures.slo import Slo
from enginehouse_sim.simulator.replay.gateway_replay import Setting
from enginehouse_sim.simulator.replay.traffic import Traffic, reseeded
from enginehouse_sim.simulator.replay.variants import Outcome, Variant, run_variants
from enginehouse_sim.simulator.steps.profile import Profile

ASSUMED_MARGIN = 0.25
"""How much longer steps may take if nobody has compared the profile with an engine."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
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


class Planned(NamedTuple):
    """The plan, and the curves of each fleet with the first seed."""

    plan: FoundPlan
    curves: Sequence[Curves]


def fleets_of(instances: Sequence[int], choices: Sequence[tuple[str, Sequence[str]]]) -> list[Fleet]:
    """All combinations of numbers of engines and values of keys."""
    keys = [key for key, _ in choices]
    combinations = list(product(*(values for _, values in choices)))
    return [Fleet(number, dict(zip(keys, values, strict=True))) for number in instances for values in combinations]


def planned(
    question: Question, profile: Profile, on_progress: Callable[[float], None], jobs: int | None = None
) -> Planned:
    """Replay the traffic on all fleets, and judge them. Raises ``EnginehouseError``."""
    slo = question.setting.slo
    if slo is None or slo == Slo():
        raise ConfigError("a plan needs objectives", key="--slo", remedy="for example ttft=1s,tpot=15ms")
    margin, source = _margin(question, profile)
    variants = [variant for fleet in question.fleets for variant in _variants(question, fleet, margin)]
    outcomes = run_variants(variants, on_progress, jobs)
    each = question.seeds + 1
    parts = [outcomes[at : at + each] for at in range(0, len(outcomes), each)]
    verdicts = [
        judged(_replays(fleet, part), question.share, question.price)
        for fleet, part in zip(question.fleets, parts, strict=True)
    ]
    answer = cheapest(verdicts)
    plan = FoundPlan(
        objectives={name: value for name, value in msgspec.structs.asdict(slo).items() if value is not None},
        share=question.share,
        margin=round(margin, 4),
        margin_source=source,
        seeds=question.seeds,
        profile=profile.description,
        answer=None if answer is None else answer.name,
        fleets=verdicts,
    )
    return Planned(plan, [part[0].curves for part in parts])


def _margin(question: Question, profile: Profile) -> tuple[float, str]:
    if question.margin is not None:
        return question.margin, "given"
    accuracy = profile.accuracy
    if accuracy is None or accuracy.margin is None:
        return ASSUMED_MARGIN, "assumed"
    return accuracy.margin, "calibrated" if accuracy.margin == accuracy.step else "validated"


def _variants(question: Question, fleet: Fleet, margin: float) -> list[Variant]:
    """One replay for each seed, then one with longer steps."""
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


def _replays(fleet: Fleet, outcomes: Sequence[Outcome]) -> FleetReplays:
    *nominal, slower = (each.figures for each in outcomes)
    return FleetReplays(fleet=fleet, nominal=nominal, slower=slower)
