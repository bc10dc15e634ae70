"""The commands of ``enginehouse sim``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from enginehouse import EnginehouseError
from enginehouse_sim.simulator.core.options import POSITIVE, core_options
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.serve.command import serve


@click.group(name="sim")
def sim() -> None:
    """Simulate an inference engine, without a GPU and without a model."""


sim.add_command(serve)


_trace = click.argument("trace", type=click.Path(path_type=Path))
_limit = click.option("--limit", type=POSITIVE, help="Only so many requests of the trace.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@sim.command(context_settings={"show_default": True})
@_trace
@core_options
@_limit
@_json
@click.option("--plot", "picture", type=click.Path(path_type=Path), help="Draw the figures: an .svg or .png file.")
def replay(trace: Path, core: CoreSettings, limit: int | None, as_json: bool, picture: Path | None) -> None:
    """Run the requests of TRACE through the engine on a virtual clock, and report latencies and throughput.

    TRACE is a CSV or JSON lines file with arrival (seconds), input_length, output_length and optionally prefix_ids, or
    an Azure or Mooncake trace as published.
    """
    from enginehouse_sim.simulator.replay.command import run_replay

    _report_errors(run_replay, trace, core, limit, as_json, picture)


@sim.command(context_settings={"show_default": True})
@_trace
@core_options
@_limit
@_json
def steps(trace: Path, core: CoreSettings, limit: int | None, as_json: bool) -> None:
    """Print what the scheduler plans for each step of TRACE; with --json the whole plan, one object in each line."""
    from enginehouse_sim.simulator.replay.command import run_steps

    _report_errors(run_steps, trace, core, limit, as_json)


def _report_errors(run: Callable[..., None], *arguments: object) -> None:
    try:
        run(*arguments)
    except EnginehouseError as error:
        raise click.ClickException(str(error)) from error
