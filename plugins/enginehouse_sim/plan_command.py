"""The command ``enginehouse plan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from enginehouse import ConfigError
from enginehouse_kit.output import print_json
from enginehouse_sim.commands import JOBS_OPTION, gateway_options, trace_options
from enginehouse_sim.simulator.core.options import JSON_OPTION, POSITIVE, Finite, progress

if TYPE_CHECKING:
    from enginehouse_sim.simulator.replay.gateway_replay import Setting
    from enginehouse_sim.simulator.replay.variants import TraceFile


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
