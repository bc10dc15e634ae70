"""Prints and draws plans for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from enginehouse_sim.simulator.planning.planner import FleetPlan, FoundPlan, Planned
from enginehouse_sim.simulator.replay.figures.plot import plot_curves

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


def draw_plan(planned: Planned, path: Path) -> None:
    """Draw the replays of all fleets with the first seed. Raises ``ConfigError``."""
    plot_curves([fleet.name for fleet in planned.plan.fleets], planned.curves, path)


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
