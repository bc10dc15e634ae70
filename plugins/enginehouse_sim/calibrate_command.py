"""The command ``enginehouse sim calibrate``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from enginehouse import ConfigError, print_json
from enginehouse_sim.simulator.core.options import POSITIVE, can_draw, duration_option, reports_errors

if TYPE_CHECKING:
    from enginehouse_sim.simulator.calibration.calibrate import Calibration, CalibrationPlan
    from enginehouse_sim.simulator.calibration.fit import Observation

_Found = tuple["Calibration", Sequence["Observation"]]


class _CalibrateFlags(msgspec.Struct, kw_only=True):
    """The options that say what to measure."""

    url: str | None
    model: str
    api_key: str
    budget: float
    max_streams: int
    max_prompt: int
    seed: int
    records: Path | None
    fresh: bool
    dry_run: bool


@click.command(context_settings={"show_default": True})
@click.argument("url", required=False)
@click.option("--model", default="", help="Model to ask for.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The profile to write: a .toml file."
)
@click.option("--api-key", default="", help="Key of the engine's API.", envvar="ENGINEHOUSE_API_KEY")
@duration_option("--budget", default="2m", help="Time after which no further round of probes begins.")
@click.option("--max-streams", type=POSITIVE, default=32, help="Most streams at once.")
@click.option("--max-prompt", type=POSITIVE, default=4096, help="Most tokens of a prompt.")
@click.option("--seed", type=int, default=0, help="Decides the order of the probes.")
@click.option("--from-traces", "records", type=click.Path(path_type=Path), help="Fit records of real traffic instead.")
@click.option("--fresh", is_flag=True, help="Drop the probes of an earlier run that was interrupted.")
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@click.option("--force", is_flag=True, help="Write the profile even if the fit is unusable.")
@click.option(
    "--plot", "picture", type=click.Path(path_type=Path), callback=can_draw, help="Draw it: an .svg or .png file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reports_errors
def calibrate(output: Path, force: bool, picture: Path | None, as_json: bool, **flags: Any) -> None:
    """Measure the speed of the engine at URL.

    It is written as a profile.

    The engine is asked over HTTP alone: for prompts of several lengths, for streams in several numbers, and for both
    together. It takes about two minutes, in which the engine should have no other work. An interrupted run goes on.
    --from-traces fits the records of /api/history instead, and asks no engine.
    """
    if output.suffix != ".toml":
        raise ConfigError(f"{str(output)!r} is no .toml file", key="--output", remedy="write -o engine.toml")
    asked = _CalibrateFlags(**flags)
    found = _of_probes(asked, output) if asked.records is None else _of_records(asked, asked.records)
    if found is not None:
        _tell(*found, picture, as_json=as_json)
        _write(found[0], output, force=force)
        _journal(output).unlink(missing_ok=True)  # the next run is a new one


def _of_records(asked: _CalibrateFlags, records: Path) -> _Found:
    """Fit records of real traffic. Raises ``ConfigError``."""
    from enginehouse_sim.simulator.calibration.calibrate import calibrated
    from enginehouse_sim.simulator.calibration.records import observations_of, read_records
    from enginehouse_sim.simulator.steps.profile import EngineLimits

    observations = observations_of(read_records(records), asked.model)
    source = f"records of requests in {records.name}"
    return calibrated(observations, asked.model or str(records), EngineLimits(), source), observations


def _of_probes(asked: _CalibrateFlags, output: Path) -> _Found | None:
    """Probe an engine; ``None`` if it was only asked what that would be. Raises ``EnginehouseError``."""
    from enginehouse_sim.simulator.calibration.calibrate import calibrate as run
    from enginehouse_sim.simulator.calibration.printing import print_intent
    from enginehouse_sim.simulator.replay.progress import progress

    plan, journal = _planned(asked), _journal(output)
    print_intent(plan)
    if asked.dry_run:
        return None
    if asked.fresh:
        journal.unlink(missing_ok=True)
    if journal.exists():
        click.echo(
            f"An earlier run did not end: this one goes on with its probes ({journal}). --fresh drops them.", err=True
        )
    with progress("probes") as on_progress:
        return run(plan, journal, on_progress)


def _journal(output: Path) -> Path:
    """Where the probes are until the profile is written."""
    return output.with_suffix(".probes.jsonl")


def _planned(asked: _CalibrateFlags) -> CalibrationPlan:
    from enginehouse_sim.simulator.calibration.calibrate import planned
    from enginehouse_sim.simulator.calibration.prober import ProbeBounds
    from enginehouse_sim.simulator.calibration.streams import EngineAddress

    if asked.url is None or not asked.model:
        raise ConfigError("needs the URL of an engine and --model, or --from-traces")
    address = EngineAddress(url=asked.url, model=asked.model, key=asked.api_key)
    bounds = ProbeBounds(streams=asked.max_streams, prompt=asked.max_prompt)
    return asyncio.run(planned(address, bounds, asked.budget, asked.seed))


def _tell(found: Calibration, observations: Sequence[Observation], picture: Path | None, *, as_json: bool) -> None:
    """Print and draw the fit. Raises ``ConfigError``."""
    from enginehouse_sim.simulator.calibration.printing import draw_fit, print_calibration

    if picture is not None:
        draw_fit(found.profile, observations, picture)
    if as_json:
        print_json(msgspec.json.encode(found))
    else:
        print_calibration(found)


def _write(found: Calibration, output: Path, *, force: bool) -> None:
    """Write the profile. Raises ``ConfigError`` if the fit is unusable, unless it is forced."""
    from enginehouse_sim.simulator.steps.profile import write_profile

    if found.verdict == "unusable" and not force:
        raise ConfigError(f"No profile is written: {found.why}. --force writes it nevertheless")
    write_profile(output, found.profile)
