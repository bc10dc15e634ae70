"""The commands ``enginehouse sim calibrate`` and ``enginehouse sim validate``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from enginehouse import ConfigError, EnginehouseError
from enginehouse_sim.simulator.core.options import POSITIVE, core_options, duration_option
from enginehouse_sim.simulator.core.settings import CoreSettings

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_plot = click.option("--plot", "picture", type=click.Path(path_type=Path), help="Draw it: an .svg or .png file.")
_key = click.option("--api-key", default="", help="Key of the engine's API.", envvar="ENGINEHOUSE_API_KEY")


@click.command(context_settings={"show_default": True})
@click.argument("url", required=False)
@click.option("--model", default="", help="Model to ask for.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The profile to write: a .toml file."
)
@_key
@duration_option("--budget", default="2m", help="Time after which no further round of probes begins.")
@click.option("--max-streams", type=POSITIVE, default=32, help="Most streams at once.")
@click.option("--max-prompt", type=POSITIVE, default=4096, help="Most tokens of a prompt.")
@click.option("--seed", type=int, default=0, help="Decides the order of the probes.")
@click.option("--from-traces", "records", type=click.Path(path_type=Path), help="Fit records of real traffic instead.")
@click.option("--fresh", is_flag=True, help="Drop the probes of an earlier run that was interrupted.")
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@click.option("--force", is_flag=True, help="Write the profile even if the fit is unusable.")
@_plot
@_json
def calibrate(
    url: str | None,
    model: str,
    output: Path,
    api_key: str,
    budget: float,
    max_streams: int,
    max_prompt: int,
    seed: int,
    records: Path | None,
    fresh: bool,
    dry_run: bool,
    force: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Measure the speed of the engine at URL.

    It is written as a profile.

    The engine is asked over HTTP alone: for prompts of several lengths, for streams in several numbers, and for both
    together. It takes about two minutes, in which the engine should have no other work. An interrupted run goes on.
    --from-traces fits the records of /api/history instead, and asks no engine.
    """
    from enginehouse_sim.simulator.calibration.calibrate import calibrate as run
    from enginehouse_sim.simulator.calibration.calibrate import calibrated, planned
    from enginehouse_sim.simulator.calibration.picture import draw_fit
    from enginehouse_sim.simulator.calibration.printing import print_calibration, print_intent
    from enginehouse_sim.simulator.calibration.probes import ProbeBounds
    from enginehouse_sim.simulator.calibration.records import observations_of, read_records
    from enginehouse_sim.simulator.calibration.streams import EngineAddress
    from enginehouse_sim.simulator.replay.progress import progress
    from enginehouse_sim.simulator.steps.profile import EngineLimits, profile_text

    journal = output.with_suffix(".probes.jsonl")
    try:
        if records is not None:
            observations = observations_of(read_records(records), model)
            found = calibrated(
                observations, model or str(records), EngineLimits(), f"records of requests in {records.name}"
            )
        elif url is None or not model:
            raise ConfigError("needs the URL of an engine and --model, or --from-traces")
        else:
            address = EngineAddress(url=url, model=model, key=api_key)
            plan = asyncio.run(planned(address, ProbeBounds(streams=max_streams, prompt=max_prompt), budget, seed))
            print_intent(plan)
            if dry_run:
                return
            if fresh:
                journal.unlink(missing_ok=True)
            with progress("probes") as on_progress:
                found, observations = run(plan, journal, on_progress)
        if picture is not None:
            draw_fit(found.profile, observations, picture)
    except EnginehouseError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        print_calibration(found)
    if found.verdict == "unusable" and not force:
        raise click.ClickException(f"No profile is written: {found.why}. --force writes it nevertheless")
    _write(output, profile_text(found.profile))


@click.command(context_settings={"show_default": True})
@click.argument("trace", type=click.Path(path_type=Path))
@core_options
@click.option("--gateway", "url", required=True, help="Address of the engine, or of a gateway in front of it.")
@click.option("--model", required=True, help="Model to ask for.")
@_key
@click.option("--runs", type=POSITIVE, default=2, help="How often to play the trace, for the engine's own spread.")
@click.option("--limit", type=POSITIVE, help="Read only this number of requests of the trace.")
@click.option("--format", "format_name", type=click.Choice(["azure", "bailian", "mooncake", "plain"]), help="Format.")
@click.option("--save", is_flag=True, help="Write the errors into the profile, where enginehouse plan reads them.")
@_plot
@_json
def validate(
    trace: Path,
    core: CoreSettings,
    url: str,
    model: str,
    api_key: str,
    runs: int,
    limit: int | None,
    format_name: str | None,
    save: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Compare a replay of TRACE with a real engine.

    The trace is replayed with a profile, and played to the engine in real time.

    The prompts have the lengths and common beginnings of the trace, and tokens without a meaning. It takes as long as
    the trace, once for each run.
    """
    from enginehouse_sim.simulator.calibration.printing import print_validation
    from enginehouse_sim.simulator.calibration.streams import EngineAddress
    from enginehouse_sim.simulator.calibration.validation import compared, played
    from enginehouse_sim.simulator.core.build import build_core, outside_costs
    from enginehouse_sim.simulator.replay.figures.curves import curves_of
    from enginehouse_sim.simulator.replay.figures.plot import plot_curves
    from enginehouse_sim.simulator.replay.figures.report import report
    from enginehouse_sim.simulator.replay.progress import progress
    from enginehouse_sim.simulator.replay.simulate import Replay
    from enginehouse_sim.simulator.replay.traffic import TraceFile
    from enginehouse_sim.simulator.steps.profile import load_profile, profile_text

    try:
        if not core.profile:
            raise ConfigError("there is nothing to validate", key="--profile", remedy="sim calibrate writes a profile")
        profile = load_profile(core.profile)
        if save and not core.profile.endswith(".toml"):
            raise ConfigError(
                "cannot write into a bundled profile", key="--save", remedy="give the path of a .toml file"
            )
        requests = list(TraceFile(path=trace, limit=limit, format=format_name or "").open())
        address = EngineAddress(url=url, model=model, key=api_key)
        predicted = Replay(requests, build_core(core, makes_text=False), None, outside_costs(core)).run()
        with progress("trace") as on_progress:
            records = asyncio.run(played(address, requests, runs, on_progress))
        found = compared(report(predicted), [report(record) for record in records], profile.description)
        if picture is not None:
            names = ["predicted", *(f"engine, run {number}" for number in range(1, runs + 1))]
            plot_curves(names, [curves_of(record) for record in (predicted, *records)], picture)
    except EnginehouseError as error:
        raise click.ClickException(str(error)) from error
    if save:
        step = None if profile.accuracy is None else profile.accuracy.step
        accuracy = msgspec.structs.replace(found.accuracy, step=step)
        _write(Path(core.profile), profile_text(msgspec.structs.replace(profile, accuracy=accuracy)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        print_validation(found)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
