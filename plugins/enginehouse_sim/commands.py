"""The commands ``enginehouse sim`` and ``enginehouse plan``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from enginehouse import ConfigError
from enginehouse_kit.output import print_json
from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.core.options import (
    JSON_OPTION,
    POSITIVE,
    Finite,
    core_options,
    duration_option,
    progress,
)
from enginehouse_sim.simulator.serve.command import serve
from enginehouse_sim.simulator.steps.profile import latency_files, load_profile

if TYPE_CHECKING:
    from enginehouse_sim.simulator.replay.gateway_replay import Setting
    from enginehouse_sim.simulator.replay.variants import TraceFile


def trace_options(*, required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add TRACE and its options to a command, which gets them as ``trace``: a ``TraceFile``, or ``None`` without it."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @click.argument("trace", type=click.Path(path_type=Path), required=required)
        @click.option("--limit", type=POSITIVE, help="Read only this number of requests of the trace.")
        @click.option(
            "--format",
            type=click.Choice(["azure", "bailian", "mooncake", "plain"]),
            help="Format of the trace; by default, its fields decide.",
        )
        @wraps(command)
        def with_trace(trace: Path | None, limit: int | None, format: str | None, **flags: Any) -> None:
            from enginehouse_sim.simulator.replay.variants import TraceFile

            command(trace=None if trace is None else TraceFile(path=trace, limit=limit, format=format), **flags)

        return with_trace

    return add


def gateway_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a virtual gateway and its engines to a command.

    The command gets them as ``setting``, with the values to try as ``choices``.
    """

    @core_options
    @click.option("--slo", help="Objectives: ttft=2s,tpot=50ms,latency=1m.")
    @click.option("--config", type=click.Path(path_type=Path), help="The gateway's file.")
    @click.option("--set", "changes", multiple=True, metavar="KEY=A,B", help="Values of a key of the file to try.")
    @duration_option("--load-time", default="5s", help="Time in which an engine loads a model.")
    @click.option("--model", default="", help="Model of requests without one in the trace; by default the first.")
    @wraps(command)
    def with_gateway(
        core: CoreSettings, slo: str | None, config: Path | None, changes: Sequence[str], **flags: Any
    ) -> None:
        from enginehouse_sim.simulator.replay.gateway_replay import Setting
        from enginehouse_sim.simulator.replay.report import Slo
        from enginehouse_sim.simulator.replay.variants import choice_of
        from enginehouse_sim.virtual import VirtualSettings

        setting = Setting(
            gateway=VirtualSettings(file=config, seed=core.seed),
            core=core,
            load_time=flags.pop("load_time"),
            model=flags.pop("model"),
            slo=Slo.parse(slo) if slo else None,
        )
        command(setting=setting, choices=[choice_of(change) for change in changes], **flags)

    return with_gateway


JOBS_OPTION = click.option(
    "--jobs", type=POSITIVE, help="Replays at once; default: one for each core.", show_default=False
)
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
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@click.option("--force", is_flag=True, help="Write the profile even if the fit is unusable.")
@JSON_OPTION
def calibrate(
    url: str | None,
    model: str,
    output: Path,
    api_key: str,
    budget: float,
    max_streams: int,
    max_prompt: int,
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
    plan = asyncio.run(calibrating.planned(address, bounds, budget))
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
@trace_options(required=True)
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
@click.option("--save", is_flag=True, help="Write the errors into the profile, where enginehouse plan reads them.")
@JSON_OPTION
def validate(
    trace: TraceFile,
    core: CoreSettings,
    url: str,
    model: str,
    api_key: str,
    runs: int,
    measured: Path | None,
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
    from enginehouse_sim.simulator.replay.played_engine import Replay
    from enginehouse_sim.simulator.steps.profile import load_profile, write_profile

    if not core.profile:
        raise ConfigError("there is nothing to validate", key="--profile", remedy="sim calibrate writes a profile")
    if save and not core.profile.endswith(".toml"):
        raise ConfigError("cannot write into a bundled profile", key="--save", remedy="give the path of a .toml file")
    profile = load_profile(core.profile)
    requests = list(trace.open())
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


@click.group(name="sim")
def sim() -> None:
    """Simulate inference engines, without a GPU or a model."""


sim.add_command(serve)
sim.add_command(calibrate)
sim.add_command(validate)


@sim.command(context_settings={"show_default": True})
@trace_options(required=True)
@gateway_options
@click.option("--instances", type=POSITIVE, help="Number of engines for each model.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help="ENGINE:KIND@TIME[+DURATION], with KIND kill, stall, refuse or slow=F: gpu-1:kill@30s+10s.",
)
@JOBS_OPTION
@JSON_OPTION
def replay(
    trace: TraceFile,
    setting: Setting,
    choices: Sequence[tuple[str, Sequence[str]]],
    instances: int | None,
    faults: Sequence[str],
    jobs: int | None,
    as_json: bool,
) -> None:
    """Run the requests of TRACE on a virtual clock.

    Latencies and throughput are reported.

    Without --config, --set, --instances and --fault, the requests go to one engine. With one of these, they go through
    a whole gateway; each combination of the values of --set is replayed, and all are reported side by side.

    --fault kills an engine, stalls it, makes its steps take F times as long, or has it refuse connections, from TIME
    on. Without DURATION, it lasts until the end.

    TRACE is a CSV or JSON lines file with arrival (seconds), input_length, output_length and optionally prefix_ids and
    model, or a trace of Azure, Bailian or Mooncake as published.
    """
    from enginehouse_sim.simulator.replay.faults import PlannedFault
    from enginehouse_sim.simulator.replay.report import Report, print_figures
    from enginehouse_sim.simulator.replay.variants import replayed_alone, run_variants, variants_of

    figures: Sequence[Report]
    is_alone = setting.gateway.file is None and instances is None and not choices and not faults
    with progress("trace") as on_progress:
        if is_alone:
            figures = [replayed_alone(trace, setting.core, setting.slo, on_progress)]
        else:
            gateway = msgspec.structs.replace(setting.gateway, instances=instances)
            planned = tuple(PlannedFault.parse(fault) for fault in faults)
            changed = msgspec.structs.replace(setting, gateway=gateway, faults=planned)
            figures = run_variants(variants_of(trace, changed, choices), on_progress, jobs)
    if as_json:
        print_json(msgspec.json.encode(figures[0] if is_alone else {"variants": figures}))
    else:
        print_figures(figures)


@sim.command(context_settings={"show_default": True})
@trace_options(required=True)
@core_options
@JSON_OPTION
def steps(trace: TraceFile, core: CoreSettings, as_json: bool) -> None:
    """Print the scheduler's plan for each step of TRACE.

    With --json the whole plan, one object in each line."""
    from enginehouse_sim.simulator.core.build import build_core, outside_costs
    from enginehouse_sim.simulator.domain.request import fields_of
    from enginehouse_sim.simulator.replay.played_engine import Replay

    replay = Replay(trace.open(), build_core(core), outside=outside_costs(core))
    encoder = msgspec.json.Encoder(order="sorted", enc_hook=fields_of)
    for planned in replay.steps():
        if as_json:
            click.echo(encoder.encode(planned))
        else:
            plan = ", ".join(f"{name}: {tokens}" for name, tokens in planned.num_scheduled_tokens.items())
            click.echo(f"{replay.now:10.4f} s  step {planned.step}: {plan or 'nothing'}")


@sim.command(context_settings={"show_default": True})
@click.argument("name", metavar="PROFILE")
@click.option("--ttft", type=click.Path(path_type=Path), required=True, help="The file for times to first token.")
@click.option("--tpot", type=click.Path(path_type=Path), required=True, help="The file for times per output token.")
@click.option("--kv-tokens", type=POSITIVE, default=262144, help="Tokens in the KV cache.")
def profile(name: str, ttft: Path, tpot: Path, kv_tokens: int) -> None:
    """Write a speed PROFILE for [rescheduling].

    It becomes two files that predict latencies.

    PROFILE is a bundled profile or a .toml file; ttft_profile and tpot_profile take the files, which have Llumnix's
    form.
    """
    found = load_profile(name)
    metadata = {"model": name, "timestamp": "", "description": f"{found.description}. {found.source}"}
    try:
        for path, content in zip((ttft, tpot), latency_files(found.steps, metadata, kv_tokens), strict=True):
            path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=error.filename) from None


@sim.command(context_settings={"show_default": True})
@click.option("--requests", type=POSITIVE, default=1000, help="Number of requests.")
@click.option("--rate", type=Finite(min=0, min_open=True), default=8.0, help="Mean arrivals in a second.")
@click.option("--lengths", default="azure-conversation", help="Tokens in and out: a shape, or IN:OUT.")
@click.option("--prefix-sharing", type=Finite(0, 1), default=0.0, help="Share of each prompt that others have too.")
@click.option("--models", default="", metavar="A,B", help="Models, each equally likely.")
@click.option("--seed", type=int, default=0, help="Equal seeds make equal traces.")
def trace(requests: int, rate: float, lengths: str, prefix_sharing: float, models: str, seed: int) -> None:
    """Print a made-up trace, as JSON lines.

    Arrivals are independent of each other. --lengths is a shape (azure-conversation, azure-code, mooncake-conversation
    or mooncake-toolagent) or IN:OUT. IN and OUT are each a number such as 512, a range such as 200-800 (any equally
    likely), 1020~1155 (log-normal with this median and mean) or ~8596 (exponential with this mean).

    --lengths coding-agents makes the turns of agents with tools: 195,000 tokens in and 317 out in the median, gaps of
    2 s, and groups of 7 subagents that share a beginning. 97 % of the tokens were in an earlier prompt.
    """
    from enginehouse_sim.simulator.replay.traces.workload import Workload, write

    names = [name.strip() for name in models.split(",") if name.strip()]
    workload = Workload(rate=rate, lengths=lengths, prefix_sharing=prefix_sharing, models=names, seed=seed)
    write(workload.requests(requests), sys.stdout.buffer)


@click.command(context_settings={"show_default": True})
@trace_options(required=False)
@gateway_options
@click.option("--share", default="99%", help="Share of all requests that must be within the objectives.")
@click.option("--instances", default="1,2,4,8", metavar="N,...", help="Numbers of engines to try.")
@click.option("--price", type=Finite(min=0), help="Price of one engine for an hour, in any currency.")
@click.option("--rate", type=Finite(min=0, min_open=True), help="Without TRACE: mean arrivals in a second.")
@click.option("--lengths", default="azure-conversation", help="Without TRACE: tokens in and out, as for sim trace.")
@click.option("--requests", type=POSITIVE, default=1000, help="Without TRACE: number of requests.")
@click.option("--seeds", type=POSITIVE, default=3, help="How often the traffic is made, or its gaps are shuffled.")
@click.option("--margin", help="How much longer steps may take: 20%. By default the profile's accuracy.")
@JOBS_OPTION
@JSON_OPTION
def plan(
    trace: TraceFile | None,
    setting: Setting,
    choices: Sequence[tuple[str, Sequence[str]]],
    share: str,
    instances: str,
    price: float | None,
    rate: float | None,
    lengths: str,
    requests: int,
    seeds: int,
    margin: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Say how many engines a trace needs for objectives.

    Also how sure that is, and what fails first.

    TRACE is a file as for sim replay; --rate and --lengths make traffic up instead. Every fleet is replayed with
    several seeds, and with steps that take longer by the profile's error. --profile is the engines' speed.
    """
    from enginehouse_sim.simulator.planning import CapacityQuestion, fleets_of, planned, print_plan
    from enginehouse_sim.simulator.replay.traces.workload import Workload
    from enginehouse_sim.simulator.replay.variants import MadeUpTraffic
    from enginehouse_sim.simulator.steps.profile import load_profile

    core = setting.core
    if not core.profile:
        raise ConfigError("a plan needs the speed of the engines", key="--profile", remedy="see sim calibrate")
    if (trace is None) == (rate is None):
        raise ConfigError("needs a TRACE or a --rate", remedy="give one of them: enginehouse plan TRACE")
    workload = None if rate is None else Workload(rate=rate, lengths=lengths, seed=core.seed)
    traffic = trace if workload is None else MadeUpTraffic(workload=workload, number=requests)
    assert traffic is not None
    question = CapacityQuestion(
        traffic=traffic,
        setting=setting,
        fleets=fleets_of(_numbers(instances), choices),
        share=_share("--share", share),
        price=price,
        margin=None if margin is None else _share("--margin", margin),
        seeds=seeds,
    )
    with progress("fleets") as on_progress:
        found = planned(question, load_profile(core.profile), on_progress, jobs)
    if as_json:
        print_json(msgspec.json.encode(found))
    else:
        print_plan(found)


def _numbers(text: str) -> list[int]:
    """``1,2,4`` in ascending order, each once."""
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1:
        raise ConfigError(f"{text!r} is not a list of numbers", key="--instances", remedy="write 1,2,4,8")
    return numbers


def _share(key: str, text: str) -> float:
    """``99%`` or ``0.99``, as a number from 0 to 1."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ConfigError(f"{text!r} is not a share", key=key, remedy="write 99% or 0.99")
    return value
