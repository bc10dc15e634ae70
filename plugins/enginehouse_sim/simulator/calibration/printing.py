"""Prints and draws calibrations and validations for people."""

from __future__ import annotations

from collections.abc import Callable

import click
import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse_sim.simulator.calibration.calibrate import Calibration, CalibrationPlan
from enginehouse_sim.simulator.calibration.fit import PrefixCache
from enginehouse_sim.simulator.calibration.validation import Validation


def print_intent(plan: CalibrationPlan, say: Callable[[str], None] = lambda line: click.echo(line, err=True)) -> None:
    """Say what a calibration is about to do, and what it costs."""
    requests, tokens = sum(probe.requests for probe in plan.probes), sum(probe.tokens for probe in plan.probes)
    limits = ", ".join(
        f"{name} {value}" for name, value in msgspec.structs.asdict(plan.facts.limits).items() if value is not None
    )
    say(f"{plan.address.model} at {plan.address.url} is served by {plan.facts.kind}: {limits or 'it says no limits'}.")
    say(
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
    """What is known of the engine's prefix cache."""
    times = (
        f"a prompt whose beginning it had just read took {cache.measured_ms:.1f} ms; the profile has "
        f"{cache.rest_ms:.1f} ms for the rest of it and {cache.whole_ms:.1f} ms for all of it"
    )
    if cache.works is None:
        return f"Whether the engine caches prefixes is unknown, because --max-prompt is too short to tell: {times}"
    does = "caches prefixes" if cache.works else "does not cache prefixes"
    return f"The engine {does} (error {cache.error:+.0%}): {times}"


def print_validation(found: Validation) -> None:
    """Print the prediction, the measurement, and the error of each figure."""
    table = Table("", "predicted", "measured", "error, %", "engine's own spread, %")
    for each in found.figures:
        error, spread = (
            ("" if share is None else f"{100 * share:{sign}.1f}")
            for share, sign in ((each.error, "+"), (each.spread, ""))
        )
        table.add_row(each.figure, f"{each.predicted:,.2f}", f"{each.measured:,.2f}", error, spread)
    console = Console()
    console.print(table)
    runs = f"{found.runs} run" + "s" * (found.runs != 1)
    console.print(f"{found.requests} requests, {runs} of the engine; {found.failed} requests failed")
