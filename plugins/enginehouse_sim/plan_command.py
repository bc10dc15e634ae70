"""The command ``enginehouse plan``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from enginehouse import ConfigError, VirtualSettings, print_json
from enginehouse_sim.simulator.core.options import (
    FORMAT_OPTION,
    LIMIT_OPTION,
    POSITIVE,
    Finite,
    can_draw,
    core_options,
    duration_option,
    reports_errors,
)
from enginehouse_sim.simulator.core.settings import CoreSettings

if TYPE_CHECKING:
    from enginehouse_sim.simulator.planning.planner import Question
    from enginehouse_sim.simulator.replay.traffic import Traffic


@click.command(context_settings={"show_default": True})
@click.argument("trace", type=click.Path(path_type=Path), required=False)
@core_options
@click.option("--slo", required=True, help="Objectives: ttft=1s,tpot=15ms,latency=1m.")
@click.option("--share", default="99%", help="Share of all requests that must be within the objectives.")
@click.option("--instances", default="1,2,4,8", metavar="N,...", help="Numbers of engines to try.")
@click.option("--set", "changes", multiple=True, metavar="KEY=A,B", help="Values of a key of the gateway to try.")
@click.option("--config", type=click.Path(path_type=Path), help="The gateway's file.")
@click.option("--price", type=Finite(min=0), help="Price of one engine for an hour, in any currency.")
@click.option("--rate", type=Finite(min=0, min_open=True), help="Without TRACE: mean arrivals in a second.")
@click.option("--lengths", default="azure-conversation", help="Without TRACE: tokens in and out, as for sim trace.")
@click.option("--requests", type=POSITIVE, default=1000, help="Without TRACE: number of requests.")
@LIMIT_OPTION
@FORMAT_OPTION
@click.option("--model", default="", help="Model of requests without one in the trace; by default the first.")
@duration_option("--load-time", default="5s", help="Time in which an engine loads a model.")
@click.option("--seeds", type=POSITIVE, default=3, help="How often the traffic is made, or its gaps are shuffled.")
@click.option("--margin", help="How much longer steps may take: 20%. By default the profile's accuracy.")
@click.option("--jobs", type=POSITIVE, help="Replays at once; default: one for each core.", show_default=False)
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path),
    callback=can_draw,
    help="Draw the fleets: an .svg or .png file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reports_errors
def plan(core: CoreSettings, jobs: int | None, picture: Path | None, as_json: bool, **flags: Any) -> None:
    """Say how many engines a trace needs for objectives.

    Also how sure that is, and what fails first.

    TRACE is a file as for sim replay; --rate and --lengths make traffic up instead. Every fleet is replayed with
    several seeds, and with steps that take longer by the profile's error. --profile is the engines' speed.
    """
    from enginehouse_sim.simulator.planning.planner import planned
    from enginehouse_sim.simulator.planning.printing import draw_plan, print_plan
    from enginehouse_sim.simulator.replay.progress import progress
    from enginehouse_sim.simulator.steps.profile import load_profile

    profile = load_profile(_given_profile(core))
    question = _question(core, _PlanFlags(**flags))
    with progress("fleets") as on_progress:
        found = planned(question, profile, on_progress, jobs)
    if picture is not None:
        draw_plan(found, picture)
    if as_json:
        print_json(msgspec.json.encode(found.plan))
    else:
        print_plan(found.plan)


class _PlanFlags(msgspec.Struct, kw_only=True):
    """The options that make up the question."""

    trace: Path | None
    slo: str
    share: str
    instances: str
    changes: Sequence[str]
    config: Path | None
    price: float | None
    rate: float | None
    lengths: str
    requests: int
    limit: int | None
    format_name: str | None
    model: str
    load_time: float
    seeds: int
    margin: str | None


def _question(core: CoreSettings, flags: _PlanFlags) -> Question:
    """What is asked. Raises ``ConfigError``."""
    from enginehouse_sim.simulator.planning.planner import Question, fleets_of
    from enginehouse_sim.simulator.replay.figures.record import Slo
    from enginehouse_sim.simulator.replay.gateway_replay import Setting
    from enginehouse_sim.simulator.replay.variants import choice_of

    gateway = VirtualSettings(file=flags.config, seed=core.seed)
    slo = Slo.parse(flags.slo)
    return Question(
        traffic=_traffic(core.seed, flags),
        setting=Setting(gateway=gateway, core=core, load_time=flags.load_time, model=flags.model, slo=slo),
        fleets=fleets_of(_numbers(flags.instances), [choice_of(change) for change in flags.changes]),
        share=_share("--share", flags.share),
        price=flags.price,
        margin=None if flags.margin is None else _share("--margin", flags.margin),
        seeds=flags.seeds,
    )


def _traffic(seed: int, flags: _PlanFlags) -> Traffic:
    from enginehouse_sim.simulator.replay.traces.workload import Workload
    from enginehouse_sim.simulator.replay.traffic import MadeUpTraffic, TraceFile

    if flags.trace is not None and flags.rate is None:
        return TraceFile(path=flags.trace, limit=flags.limit, format=flags.format_name)
    if flags.trace is None and flags.rate is not None:
        workload = Workload(rate=flags.rate, lengths=flags.lengths, seed=seed)
        return MadeUpTraffic(workload=workload, number=flags.requests)
    raise ConfigError("needs a TRACE or a --rate", remedy="give one of them: enginehouse plan TRACE")


def _given_profile(core: CoreSettings) -> str:
    if not core.profile:
        raise ConfigError("a plan needs the speed of the engines", key="--profile", remedy="see sim calibrate")
    return core.profile


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
