"""The command ``enginehouse plan``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from enginehouse import ConfigError
from enginehouse_kit.output import print_json
from enginehouse_sim.simulator.core.options import (
    FORMAT_OPTION,
    JSON_OPTION,
    LIMIT_OPTION,
    POSITIVE,
    Finite,
    core_options,
    duration_option,
    progress,
    reports_errors,
)
from enginehouse_sim.simulator.domain.constants import CoreSettings

if TYPE_CHECKING:
    from enginehouse_sim.simulator.replay.variants import Traffic


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
@JSON_OPTION
@reports_errors
def plan(
    trace: Path | None,
    core: CoreSettings,
    slo: str,
    share: str,
    instances: str,
    changes: Sequence[str],
    config: Path | None,
    price: float | None,
    rate: float | None,
    lengths: str,
    requests: int,
    limit: int | None,
    format_name: str | None,
    model: str,
    load_time: float,
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
    from enginehouse_sim.simulator.replay.figures.report import Slo
    from enginehouse_sim.simulator.replay.gateway_replay import Setting
    from enginehouse_sim.simulator.replay.traces.workload import Workload
    from enginehouse_sim.simulator.replay.variants import MadeUpTraffic, TraceFile, choice_of
    from enginehouse_sim.simulator.steps.profile import load_profile
    from enginehouse_sim.virtual import VirtualSettings

    if not core.profile:
        raise ConfigError("a plan needs the speed of the engines", key="--profile", remedy="see sim calibrate")
    traffic: Traffic
    if trace is not None and rate is None:
        traffic = TraceFile(path=trace, limit=limit, format=format_name)
    elif trace is None and rate is not None:
        traffic = MadeUpTraffic(workload=Workload(rate=rate, lengths=lengths, seed=core.seed), number=requests)
    else:
        raise ConfigError("needs a TRACE or a --rate", remedy="give one of them: enginehouse plan TRACE")
    gateway = VirtualSettings(file=config, seed=core.seed)
    question = CapacityQuestion(
        traffic=traffic,
        setting=Setting(gateway=gateway, core=core, load_time=load_time, model=model, slo=Slo.parse(slo)),
        fleets=fleets_of(_numbers(instances), [choice_of(change) for change in changes]),
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
