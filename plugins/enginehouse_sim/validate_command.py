"""The command ``enginehouse sim validate``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from enginehouse import ConfigError, print_json
from enginehouse_sim.simulator.core.options import (
    FORMAT_OPTION,
    LIMIT_OPTION,
    POSITIVE,
    can_draw,
    core_options,
    reports_errors,
)
from enginehouse_sim.simulator.core.settings import CoreSettings

if TYPE_CHECKING:
    from enginehouse_sim.simulator.calibration.validation import MeasuredRun, Validation
    from enginehouse_sim.simulator.replay.figures.record import Record
    from enginehouse_sim.simulator.replay.traces.trace import TraceRequest
    from enginehouse_sim.simulator.steps.profile import AnyProfile


class _ValidateFlags(msgspec.Struct, kw_only=True):
    """The options that say what to play, and where."""

    trace: Path
    url: str
    model: str
    api_key: str
    runs: int
    measured: Path | None
    limit: int | None
    format_name: str | None


@click.command(context_settings={"show_default": True})
@click.argument("trace", type=click.Path(path_type=Path))
@core_options
@click.option("--gateway", "url", default="", help="Address of the engine, or of a gateway in front of it.")
@click.option("--model", default="", help="Model to ask for.")
@click.option("--api-key", default="", help="Key of the engine's API.", envvar="ENGINEHOUSE_API_KEY")
@click.option("--runs", type=POSITIVE, default=2, help="How often to play the trace, for the engine's own spread.")
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    help="Keep what the engine did in this file; if there is one, compare with it and ask no engine.",
)
@LIMIT_OPTION
@FORMAT_OPTION
@click.option("--save", is_flag=True, help="Write the errors into the profile, where enginehouse plan reads them.")
@click.option(
    "--plot", "picture", type=click.Path(path_type=Path), callback=can_draw, help="Draw it: an .svg or .png file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reports_errors
def validate(core: CoreSettings, save: bool, picture: Path | None, as_json: bool, **flags: Any) -> None:
    """Compare a replay of TRACE with a real engine.

    The trace is replayed with a profile, and played to the engine in real time.

    The prompts have the lengths and common beginnings of the trace, and tokens without a meaning. It takes as long as
    the trace, once for each run.
    """
    from enginehouse_sim.simulator.calibration.printing import print_validation
    from enginehouse_sim.simulator.calibration.validation import compared, measured_run
    from enginehouse_sim.simulator.replay.traffic import TraceFile

    asked = _ValidateFlags(**flags)
    profile = _profile(core, save=save)
    requests = list(TraceFile(path=asked.trace, limit=asked.limit, format=asked.format_name).open())
    predicted = _replayed(core, requests)
    runs, records = _measured(asked, requests)
    found = compared(measured_run(predicted), runs, profile.description)
    if picture is not None:
        _draw([predicted, *records], picture)
    if save:
        _save(Path(core.profile), profile, found)
    if as_json:
        print_json(msgspec.json.encode(found))
    else:
        print_validation(found)


def _profile(core: CoreSettings, *, save: bool) -> AnyProfile:
    """The profile to compare. Raises ``ConfigError``."""
    from enginehouse_sim.simulator.steps.profile import load_profile

    if not core.profile:
        raise ConfigError("there is nothing to validate", key="--profile", remedy="sim calibrate writes a profile")
    if save and not core.profile.endswith(".toml"):
        raise ConfigError("cannot write into a bundled profile", key="--save", remedy="give the path of a .toml file")
    return load_profile(core.profile)


def _replayed(core: CoreSettings, requests: Sequence[TraceRequest]) -> Record:
    from enginehouse_sim.simulator.core.build import build_core, outside_costs
    from enginehouse_sim.simulator.replay.simulate import Replay

    return Replay(requests, build_core(core, makes_text=False), None, outside_costs(core)).run()


def _measured(
    asked: _ValidateFlags, requests: Sequence[TraceRequest]
) -> tuple[Sequence[MeasuredRun], Sequence[Record]]:
    """What the engine did, and the records of what it has done just now. Raises ``EnginehouseError``."""
    from enginehouse_sim.simulator.calibration.streams import EngineAddress
    from enginehouse_sim.simulator.calibration.validation import measured_run, played, read_runs, write_runs
    from enginehouse_sim.simulator.replay.progress import progress

    if asked.measured is not None and asked.measured.exists():
        return read_runs(asked.measured, len(requests)), ()
    if not (asked.url and asked.model):
        raise ConfigError("needs an engine", key="--gateway and --model", remedy="or give a file with --measured")
    address = EngineAddress(url=asked.url, model=asked.model, key=asked.api_key)
    with progress("trace") as on_progress:
        records = asyncio.run(played(address, requests, asked.runs, on_progress))
    runs = [measured_run(record) for record in records]
    if asked.measured is not None:
        write_runs(asked.measured, runs)
    return runs, records


def _draw(records: Sequence[Record], picture: Path) -> None:
    """Draw the prediction, which comes first, and the runs of the engine. Raises ``ConfigError``."""
    from enginehouse_sim.simulator.replay.figures.plot import curves_of, plot_curves

    names = ["predicted", *(f"engine, run {number}" for number in range(1, len(records)))]
    plot_curves(names, [curves_of(record) for record in records], picture)


def _save(path: Path, profile: AnyProfile, found: Validation) -> None:
    """Write the errors into the profile. Raises ``ConfigError``."""
    from enginehouse_sim.simulator.steps.profile import write_profile

    step = None if profile.accuracy is None else profile.accuracy.step
    accuracy = msgspec.structs.replace(found.accuracy, step=step)
    write_profile(path, msgspec.structs.replace(profile, accuracy=accuracy))
