"""Prints and draws plans for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from enginehouse_sim.simulator.planning.fleet_plan import FleetPlan, Plan
from enginehouse_sim.simulator.planning.planner import Planned
from enginehouse_sim.simulator.replay.figures.plot import plot_curves

_MARGINS = {
    "validated": "the largest error of a median when the profile was compared with its engine",
    "calibrated": "the error of probes when the profile was calibrated; sim validate compares whole replays",
    "given": "as given",
    "assumed": "an assumption: nobody has compared the profile with an engine, see sim validate",
}


def print_plan(plan: Plan) -> None:
    """Print the verdicts as a table, then the answer."""
    console = Console()
    table = Table(*_heads(plan))
    for fleet in plan.fleets:
        table.add_row(*_cells(plan, fleet))
    console.print(table)
    console.print(f"profile: {plan.profile}")
    console.print(
        f"sure: {plan.seeds} seeds, and steps that take {plan.margin:.0%} longer ({_MARGINS[plan.margin_source]})"
    )
    console.print(_answer(plan))


def draw_plan(planned: Planned, path: Path) -> None:
    """Draw the replays of all fleets with the first seed. Raises ``ConfigError``."""
    plot_curves([fleet.name for fleet in planned.plan.fleets], planned.curves, path)


def _heads(plan: Plan) -> Sequence[str]:
    objectives = (f"{name} in time, %" for name in plan.objectives)
    price = ("per hour", "per million tokens") if _has_price(plan) else ()
    heads = ("fleet", "meets", "in time, %", "worst seed", f"{plan.margin:.0%} slower", *objectives)
    return (*heads, "ttft p99, ms", "tpot p99, ms", "busy, %", "fails first", "lacks", *price)


def _cells(plan: Plan, fleet: FleetPlan) -> Sequence[str]:
    price = (f"{fleet.cost_per_hour:.2f}", f"{fleet.cost_per_million_tokens:.3f}") if _has_price(plan) else ()
    shares = (fleet.attainment, fleet.attainment_least, fleet.attainment_slower, *fleet.shares.values())
    return (
        fleet.name.replace(", ", "\n"),
        fleet.meets,
        *(f"{100 * share:.1f}" for share in shares),
        f"{fleet.ttft_ms.p99:,.1f}",
        f"{fleet.tpot_ms.p99:,.1f}",
        f"{100 * fleet.busy:.0f}",
        fleet.fails_first,
        fleet.bottleneck,
        *price,
    )


def _answer(plan: Plan) -> str:
    wanted = f"has {plan.share:.1%} of all requests within the objectives"
    if plan.answer is not None:
        return f"The smallest fleet that surely {wanted}: [bold]{plan.answer}[/bold]"
    if any(fleet.meets == "unsure" for fleet in plan.fleets):
        return f"No fleet surely {wanted}. Try more engines, or a profile that is closer to its engine."
    return f"No fleet {wanted}. Try more engines."


def _has_price(plan: Plan) -> bool:
    return plan.fleets[0].cost_per_hour is not None
