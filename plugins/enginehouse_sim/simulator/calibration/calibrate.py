"""Calibrates a profile: probes an engine, fits the costs of a pass, and says how good the fit is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Literal

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.calibration.fit import (
    Fitted,
    Kind,
    KindErrors,
    Observation,
    PrefixCache,
    fit,
    held_out,
    prefix_cache,
    spread,
)
from enginehouse_sim.simulator.calibration.prober import (
    Probe,
    ProbeBounds,
    Prober,
    bounds_of,
    in_random_order,
    probes_of,
    prompt_tokens,
)
from enginehouse_sim.simulator.calibration.streams import EngineAddress, EngineFacts, engine_facts
from enginehouse_sim.simulator.steps.profile import Accuracy, EngineLimits, OutsideCosts, PassProfile

_GOOD, _POOR = 0.10, 0.25
"""The median errors up to which a fit is usable, and above which it is not."""
_FAR_APART = 0.5
"""Repeats of one probe that are so far apart say that the engine had other work."""

Verdict = Literal["usable", "unsure", "unusable"]


class CalibrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a calibration will do. ``budget``: in seconds; it ends earlier after all repeats of all probes."""

    address: EngineAddress
    facts: EngineFacts
    bounds: ProbeBounds
    probes: Sequence[Probe]
    budget: float
    seed: int = 0


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The result. ``errors``: of points that the costs were not fitted to. ``spread``: of repeats of the same point.
    ``prefix_cache``: ``None`` if no prompt was asked for twice.

    ``verdict``: ``usable``, ``unsure`` or ``unusable``; ``why``: the reason, if it is not usable.
    """

    engine: str
    profile: PassProfile
    observations: int
    errors: Mapping[Kind, KindErrors]
    spread: float
    prefix_cache: PrefixCache | None
    verdict: Verdict
    why: str


async def planned(address: EngineAddress, bounds: ProbeBounds, budget: float, seed: int) -> CalibrationPlan:
    """Look at the engine, and plan its probes. Raises ``GatewayError``."""
    facts = await engine_facts(address, prompt_tokens(random.Random(), 16))
    allowed = bounds_of(facts.limits, bounds)
    probes = probes_of(facts.limits, allowed)
    return CalibrationPlan(address=address, facts=facts, bounds=allowed, probes=probes, budget=budget, seed=seed)


async def probed(plan: CalibrationPlan, on_progress: Callable[[float], None]) -> list[Observation]:
    """Carry the probes out until the budget is spent, each of them once at least. Raises ``GatewayError``."""
    observations: list[Observation] = []
    prober, began = Prober(plan.address, plan.facts), monotonic()
    order = list(in_random_order(plan.probes, plan.seed))
    for number, (repeat, probe) in enumerate(order):
        spent = (monotonic() - began) / plan.budget if plan.budget else 1.0
        if repeat and spent >= 1:
            break
        observations += await prober.observe(probe)
        on_progress(max(number / len(order), min(1.0, spent)))
    on_progress(1.0)
    return observations


def calibrated(observations: Sequence[Observation], engine: str, limits: EngineLimits, source: str) -> Calibration:
    """Fit a profile to the observations. Raises ``ConfigError`` if there are too few."""
    if len({each.point for each in observations}) < 9:
        raise ConfigError(
            "There are too few different observations for a fit", remedy="measure more of the engine's work"
        )
    cached = [each for each in observations if each.kind == "cached"]
    fresh = [each for each in observations if each.kind != "cached"]
    fitted, errors, apart = fit(fresh), held_out(fresh), spread(fresh)
    cache = prefix_cache(cached, fitted)
    if cache is not None:
        limits = msgspec.structs.replace(limits, enable_prefix_caching=cache.works)
    worst = max(each.median for each in errors.values())
    verdict, why = _verdict(worst, apart)
    return Calibration(
        engine=engine,
        profile=_profile(fitted, engine, limits, source, worst),
        observations=len(observations),
        errors=errors,
        spread=round(apart, 4),
        prefix_cache=cache,
        verdict=verdict,
        why=why,
    )


def calibrate(plan: CalibrationPlan, on_progress: Callable[[float], None]) -> Calibration:
    """Probe the engine and fit a profile. Raises ``EnginehouseError``."""
    observations = asyncio.run(probed(plan, on_progress))
    engine = f"{plan.address.model} on {plan.facts.kind} at {plan.address.url}"
    source = f"enginehouse sim calibrate, {len(observations)} observations over HTTP"
    return calibrated(observations, engine, plan.facts.limits, source)


def _verdict(worst: float, apart: float) -> tuple[Verdict, str]:
    why = []
    if worst > _GOOD:
        why.append(f"probes that the costs were not fitted to are off by {worst:.0%} (median)")
    if apart > _FAR_APART:
        why.append(f"repeats of the same probe are {apart:.0%} apart: the engine or the machine had other work")
    if not why:
        return "usable", ""
    return "unusable" if worst > _POOR else "unsure", "; ".join(why)


def _profile(fitted: Fitted, engine: str, limits: EngineLimits, source: str, worst: float) -> PassProfile:
    return PassProfile(
        description=engine,
        source=source,
        obtained="measured",
        costs=fitted.costs,
        limits=limits,
        outside=OutsideCosts(request_ms=fitted.request_ms),
        accuracy=Accuracy(step=round(worst, 4)),
    )
