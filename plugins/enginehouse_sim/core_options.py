"""The flags of an engine's core, wherever one is started."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import click
import msgspec

from enginehouse import parse_duration
from enginehouse_sim.core_settings import CoreSettings
from enginehouse_sim.scheduler.constants import SchedulerConstants, SchedulingPolicy
from enginehouse_sim.steps.profile import profile_names

POSITIVE = click.IntRange(min=1)
_SHARE = click.FloatRange(0, 1)
_CONSTANTS = frozenset(SchedulerConstants.__struct_fields__)
_SETTINGS = frozenset(CoreSettings.__struct_fields__)


def _seconds(ctx: click.Context, param: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


duration_option = partial(click.option, callback=_seconds, metavar="DURATION")
"""An option that takes ``"50ms"`` and gives seconds."""

_OPTIONS = (
    click.option("--profile", default="", help=f"How fast it is: {', '.join(profile_names())}, or a .toml file."),
    duration_option("--ttft", default="50ms", help="Time to a first token, without a profile."),
    duration_option("--tpot", default="10ms", help="Time from one token to the next, without a profile."),
    click.option(
        "--speedup", type=click.FloatRange(min=0), default=1.0, help="Divides all times; 0 is no time at all."
    ),
    click.option("--decode-speedup", type=click.FloatRange(min=0), default=1.0, help="Divides those of decodes more."),
    click.option("--seed", type=int, default=0, help="What all text and vectors are made from."),
    click.option("--mean-length", type=POSITIVE, help="Tokens until an answer ends by itself; never if left out."),
    click.option(
        "--max-model-len", "--context-length", type=POSITIVE, default=8192, help="Tokens of prompt and answer."
    ),
    click.option("--max-num-seqs", "--concurrency", type=POSITIVE, default=256, help="Most requests in a step."),
    click.option("--max-loras", type=POSITIVE, help="Most adapters in a step; any number if left out."),
    click.option("--max-num-batched-tokens", type=POSITIVE, default=8192, help="Most tokens in a step."),
    click.option("--block-size", type=POSITIVE, default=16, help="Tokens in a block of the KV cache."),
    click.option("--num-gpu-blocks", "total_gpu_blocks", type=click.IntRange(min=2), default=16384, help="Blocks."),
    click.option(
        "--policy", type=click.Choice([p.value for p in SchedulingPolicy]), default="fcfs", help="Who is next."
    ),
    click.option(
        "--chunked-prefill/--no-chunked-prefill", "chunked_prefill_enabled", default=True, help="Cut prompts."
    ),
    click.option(
        "--prefix-caching/--no-prefix-caching", "enable_prefix_caching", default=True, help="Reuse beginnings."
    ),
    click.option("--long-prefill-token-threshold", type=click.IntRange(min=0), default=0, help="Most of one prompt."),
    click.option("--watermark", type=_SHARE, default=0.0, help="Share of blocks that admissions leave free."),
    click.option("--num-spec-tokens", type=click.IntRange(min=0), default=0, help="Tokens drafted for each step."),
    click.option("--draft-acceptance", type=_SHARE, default=0.7, help="Chance of each draft to be right."),
)


def core_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these flags; it gets all of them as ``core``, a ``CoreSettings``."""

    @wraps(command)
    def with_core(**flags: Any) -> Any:
        constants = {name: flags.pop(name) for name in _CONSTANTS & flags.keys()}
        settings = {name: flags.pop(name) for name in _SETTINGS & flags.keys()}
        core = msgspec.convert({**settings, "constants": constants}, CoreSettings)
        return command(core=core, **flags)

    for option in reversed(_OPTIONS):
        with_core = option(with_core)
    return with_core
