"""The commands ``enginehouse sim replay`` and ``enginehouse sim steps``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import click
import msgspec

from enginehouse import print_json
from enginehouse_sim.simulator.core.build import build_core, outside_costs
from enginehouse_sim.simulator.core.options import progress
from enginehouse_sim.simulator.domain.constants import CoreSettings
from enginehouse_sim.simulator.domain.fields import fields_of
from enginehouse_sim.simulator.replay.figures.plot import curves_of, draw
from enginehouse_sim.simulator.replay.figures.printing import print_all, print_one
from enginehouse_sim.simulator.replay.figures.record import Slo
from enginehouse_sim.simulator.replay.figures.report import report
from enginehouse_sim.simulator.replay.gateway_replay import Setting
from enginehouse_sim.simulator.replay.simulate import Replay
from enginehouse_sim.simulator.replay.variants import TraceFile, run_variants, variants_of


def run_replay(trace: TraceFile, core: CoreSettings, slo: Slo | None, as_json: bool, picture: Path | None) -> None:
    """Replay a trace on one engine and print the report. Raises ``EnginehouseError``."""
    with progress("trace") as on_progress:
        began = perf_counter()
        record = Replay(trace.requests(on_progress), build_core(core, makes_text=False), slo, outside_costs(core)).run()
        record.real_seconds = perf_counter() - began
    figures = report(record)
    if picture is not None:
        draw([""], [curves_of(record)], picture)
    if as_json:
        print_json(msgspec.json.encode(figures))
    else:
        print_one(figures)


def run_comparison(
    trace: TraceFile,
    setting: Setting,
    choices: Sequence[tuple[str, Sequence[str]]],
    as_json: bool,
    picture: Path | None,
    jobs: int | None,
) -> None:
    """Replay a trace under every combination of ``choices`` and print all figures. Raises ``EnginehouseError``."""
    with progress("trace") as on_progress:
        outcomes = run_variants(variants_of(trace, setting, choices), on_progress, jobs)
    if picture is not None:
        draw([each.figures.name for each in outcomes], [each.curves for each in outcomes], picture)
    figures = [each.figures for each in outcomes]
    if as_json:
        print_json(msgspec.json.encode({"variants": figures}))
    elif len(figures) == 1:
        print_one(figures[0])
    else:
        print_all(figures)


def run_steps(trace: TraceFile, core: CoreSettings, as_json: bool) -> None:
    """Print every step of a trace. Raises ``EnginehouseError``."""
    replay = Replay(trace.open(), build_core(core), outside=outside_costs(core))
    encoder = msgspec.json.Encoder(order="deterministic", enc_hook=fields_of)
    for planned in replay.steps():
        if as_json:
            click.echo(encoder.encode(planned))
        else:
            plan = ", ".join(f"{name}: {tokens}" for name, tokens in planned.num_scheduled_tokens.items())
            click.echo(f"{replay.now:10.4f} s  step {planned.step}: {plan or 'nothing'}")
