"""Calibrates a profile: probes an engine, fits the costs of a pass, and prints how good the fit is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Literal

import click
import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse import ConfigError
from enginehouse_sim.simulator.calibration.fit import (
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


async def planned(address: EngineAddress, bounds: ProbeBounds, budget: float) -> CalibrationPlan:
    """Look at the engine, and plan its probes. Raises ``GatewayError``."""
    facts = await engine_facts(address, prompt_tokens(random.Random(), 16))
    allowed = bounds_of(facts.limits, bounds)
    probes = probes_of(facts.limits, allowed)
    return CalibrationPlan(address=address, facts=facts, bounds=allowed, probes=probes, budget=budget)


async def probed(plan: CalibrationPlan, on_progress: Callable[[float], None]) -> list[Observation]:
    """Carry the probes out until the budget is spent, each of them once at least. Raises ``GatewayError``."""
    observations: list[Observation] = []
    prober, began = Prober(plan.address, plan.facts), monotonic()
    order = list(in_random_order(plan.probes))
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
    why = []
    if worst > _GOOD:
        why.append(f"probes that the costs were not fitted to are off by {worst:.0%} (median)")
    if apart > _FAR_APART:
        why.append(f"repeats of the same probe are {apart:.0%} apart: the engine or the machine had other work")
    return Calibration(
        engine=engine,
        profile=PassProfile(
            description=engine,
            source=source,
            obtained="measured",
            costs=fitted.costs,
            limits=limits,
            outside=OutsideCosts(request_ms=fitted.request_ms),
            accuracy=Accuracy(step=round(worst, 4)),
        ),
        observations=len(observations),
        errors=errors,
        spread=round(apart, 4),
        prefix_cache=cache,
        verdict="unusable" if worst > _POOR else "unsure" if why else "usable",
        why="; ".join(why),
    )


def calibrate(plan: CalibrationPlan, on_progress: Callable[[float], None]) -> Calibration:
    """Probe the engine and fit a profile. Raises ``EnginehouseError``."""
    observations = asyncio.run(probed(plan, on_progress))
    engine = f"{plan.address.model} on {plan.facts.kind} at {plan.address.url}"
    source = f"enginehouse sim calibrate, {len(observations)} observations over HTTP"
    return calibrated(observations, engine, plan.facts.limits, source)


def print_intent(plan: CalibrationPlan) -> None:
    """Say what a calibration is about to do, and what it costs."""
    requests, tokens = sum(probe.requests for probe in plan.probes), sum(probe.tokens for probe in plan.probes)
    limits = ", ".join(
        f"{name} {value}" for name, value in msgspec.structs.asdict(plan.facts.limits).items() if value is not None
    )
    _say(f"{plan.address.model} at {plan.address.url} is served by {plan.facts.kind}: {limits or 'it says no limits'}.")
    _say(
        f"{len(plan.probes)} probes, of up to {plan.bounds.streams} streams and prompts of up to {plan.bounds.prompt} "
        f"tokens: {requests} requests and at least {tokens:,} tokens for one round; up to 10 rounds in about "
        f"{plan.budget:.0f} s. The engine should have no other work meanwhile."
    )


def print_calibration(found: Calibration) -> None:
    """Print the costs, the errors, and the verdict."""
    console = Console()
    costs = Table("cost of a pass", "ms")
    for name, value in msgspec.structs.asdict(found.profile.costs).items():
        costs.add_row(name, f"{value:g}")
    costs.add_row("a request, outside of the engine", f"{found.profile.outside.request_ms:g}")
    console.print(costs)
    errors = Table("error of points not fitted to", "points", "median, %", "of the sum, %")
    for kind, each in found.errors.items():
        errors.add_row(kind, str(each.observations), f"{100 * each.median:.1f}", f"{100 * each.sum:+.1f}")
    console.print(errors)
    if found.prefix_cache is not None:
        console.print(_of_cache(found.prefix_cache))
    console.print(f"{found.observations} observations; repeats of the same point are {found.spread:.0%} apart (median)")
    console.print(f"[bold]{found.verdict}[/bold]{': ' + found.why if found.why else ''}")


def _of_cache(cache: PrefixCache) -> str:
    times = (
        f"a prompt whose beginning it had just read took {cache.measured_ms:.1f} ms; the profile has "
        f"{cache.rest_ms:.1f} ms for the rest of it and {cache.whole_ms:.1f} ms for all of it"
    )
    if cache.works is None:
        return f"Whether the engine caches prefixes is unknown, because --max-prompt is too short to tell: {times}"
    does = "caches prefixes" if cache.works else "does not cache prefixes"
    return f"The engine {does} (error {cache.error:+.0%}): {times}"


def _say(line: str) -> None:
    click.echo(line, err=True)
