"""The commands ``enginehouse sim calibrate`` and ``enginehouse sim validate``, which measure real engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from enginehouse import ConfigError, print_json
from enginehouse_sim.simulator.core.options import (
    FORMAT_OPTION,
    JSON_OPTION,
    LIMIT_OPTION,
    POSITIVE,
    core_options,
    duration_option,
    progress,
    reports_errors,
)
from enginehouse_sim.simulator.domain.constants import CoreSettings

_model = click.option("--model", default="", help="Model to ask for.")
_api_key = click.option("--api-key", default="", help="Key of the engine's API.", envvar="ENGINEHOUSE_API_KEY")


@click.command(context_settings={"show_default": True})
@click.argument("url", required=False)
@_model
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The profile to write: a .toml file."
)
@_api_key
@duration_option("--budget", default="2m", help="Time after which no further round of probes begins.")
@click.option("--max-streams", type=POSITIVE, default=32, help="Most streams at once.")
@click.option("--max-prompt", type=POSITIVE, default=4096, help="Most tokens of a prompt.")
@click.option("--seed", type=int, default=0, help="Decides the order of the probes.")
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@click.option("--force", is_flag=True, help="Write the profile even if the fit is unusable.")
@JSON_OPTION
@reports_errors
def calibrate(
    url: str | None,
    model: str,
    output: Path,
    api_key: str,
    budget: float,
    max_streams: int,
    max_prompt: int,
    seed: int,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Measure the speed of the engine at URL.

    It is written as a profile.

    The engine is asked over HTTP alone: for prompts of several lengths, for streams in several numbers, and for both
    together. It takes about two minutes, in which the engine should have no other work.
    """
    from enginehouse_sim.simulator.calibration import calibrate as calibrating
    from enginehouse_sim.simulator.calibration.prober import ProbeBounds
    from enginehouse_sim.simulator.calibration.streams import EngineAddress
    from enginehouse_sim.simulator.steps.profile import write_profile

    if output.suffix != ".toml":
        raise ConfigError(f"{str(output)!r} is no .toml file", key="--output", remedy="write -o engine.toml")
    if url is None or not model:
        raise ConfigError("needs the URL of an engine and --model")
    address = EngineAddress(url=url, model=model, key=api_key)
    bounds = ProbeBounds(streams=max_streams, prompt=max_prompt)
    plan = asyncio.run(calibrating.planned(address, bounds, budget, seed))
    calibrating.print_intent(plan)
    if dry_run:
        return
    with progress("probes") as on_progress:
        found = calibrating.calibrate(plan, on_progress)
    if as_json:
        print_json(msgspec.json.encode(found))
    else:
        calibrating.print_calibration(found)
    if found.verdict == "unusable" and not force:
        raise ConfigError(f"No profile is written: {found.why}. --force writes it nevertheless")
    write_profile(output, found.profile)


@click.command(context_settings={"show_default": True})
@click.argument("trace", type=click.Path(path_type=Path))
@core_options
@click.option("--gateway", "url", default="", help="Address of the engine, or of a gateway in front of it.")
@_model
@_api_key
@click.option("--runs", type=POSITIVE, default=2, help="How often to play the trace, for the engine's own spread.")
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    help="Keep what the engine did in this file; if there is one, compare with it and ask no engine.",
)
@LIMIT_OPTION
@FORMAT_OPTION
@click.option("--save", is_flag=True, help="Write the errors into the profile, where enginehouse plan reads them.")
@JSON_OPTION
@reports_errors
def validate(
    trace: Path,
    core: CoreSettings,
    url: str,
    model: str,
    api_key: str,
    runs: int,
    measured: Path | None,
    limit: int | None,
    format_name: str | None,
    save: bool,
    as_json: bool,
) -> None:
    """Compare a replay of TRACE with a real engine.

    The trace is replayed with a profile, and played to the engine in real time.

    The prompts have the lengths and common beginnings of the trace, and tokens without a meaning. It takes as long as
    the trace, once for each run.
    """
    from enginehouse_sim.simulator.calibration.streams import EngineAddress
    from enginehouse_sim.simulator.calibration.validation import (
        compared,
        measured_run,
        played,
        print_validation,
        read_runs,
        write_runs,
    )
    from enginehouse_sim.simulator.core.build import build_core, outside_costs
    from enginehouse_sim.simulator.replay.simulate import Replay
    from enginehouse_sim.simulator.replay.variants import TraceFile
    from enginehouse_sim.simulator.steps.profile import load_profile, write_profile

    if not core.profile:
        raise ConfigError("there is nothing to validate", key="--profile", remedy="sim calibrate writes a profile")
    if save and not core.profile.endswith(".toml"):
        raise ConfigError("cannot write into a bundled profile", key="--save", remedy="give the path of a .toml file")
    profile = load_profile(core.profile)
    requests = list(TraceFile(path=trace, limit=limit, format=format_name).open())
    predicted = Replay(requests, build_core(core, makes_text=False), None, outside_costs(core)).run()
    if measured is not None and measured.exists():
        found_runs = read_runs(measured, len(requests))
    elif not (url and model):
        raise ConfigError("needs an engine", key="--gateway and --model", remedy="or give a file with --measured")
    else:
        address = EngineAddress(url=url, model=model, key=api_key)
        with progress("trace") as on_progress:
            found_runs = [measured_run(each) for each in asyncio.run(played(address, requests, runs, on_progress))]
        if measured is not None:
            write_runs(measured, found_runs)
    found = compared(measured_run(predicted), found_runs, profile.description)
    if save:
        step = None if profile.accuracy is None else profile.accuracy.step
        accuracy = msgspec.structs.replace(found.accuracy, step=step)
        write_profile(Path(core.profile), msgspec.structs.replace(profile, accuracy=accuracy))
    if as_json:
        print_json(msgspec.json.encode(found))
    else:
        print_validation(found)
