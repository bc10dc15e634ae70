"""The command-line options of an engine core."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from enginehouse import OFFLOAD_ORDERS, ConfigError, EnginehouseError, parse_duration
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.domain.constants import (
    DraftMethod,
    OffloadSettings,
    SchedulerConstants,
    SchedulingPolicy,
)
from enginehouse_sim.simulator.steps.profile import load_profile, profile_names


class Finite(click.FloatRange):
    """A number in a range; neither infinite nor ``nan``, which click takes for one in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


POSITIVE = click.IntRange(min=1)


def can_draw(_context: click.Context, _option: click.Parameter, picture: Path | None) -> Path | None:
    """``picture``; raises ``ConfigError`` if what draws it is missing, before the work and not after it."""
    if picture is not None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            remedy = "install it: pip install 'enginehouse[plot]'"
            raise ConfigError("A picture needs matplotlib", key="--plot", remedy=remedy) from None
    return picture


_CONSTANTS = frozenset(SchedulerConstants.__struct_fields__)
_SETTINGS = frozenset(CoreSettings.__struct_fields__)
_OFFLOAD = frozenset(OffloadSettings.__struct_fields__)


def _seconds(ctx: click.Context, param: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


duration_option = partial(click.option, callback=_seconds, metavar="DURATION")
"""An option that converts ``"50ms"`` to seconds."""

FORMAT_OPTION = click.option(
    "--format",
    "format_name",
    type=click.Choice(["azure", "bailian", "mooncake", "plain"]),
    help="Format of the trace; by default, its fields decide.",
)
LIMIT_OPTION = click.option("--limit", type=POSITIVE, help="Read only this number of requests of the trace.")

_positive = partial(click.option, type=POSITIVE)
_count = partial(click.option, type=click.IntRange(min=0), default=0)
_ratio = partial(click.option, type=Finite(min=0), default=1.0)
_share = partial(click.option, type=Finite(0, 1))
_either = partial(click.option, default=True)


def _one_of(kind: type[Enum]) -> Callable[..., Callable[..., Any]]:
    return partial(click.option, type=click.Choice([each.value for each in kind]))


_policy = partial(_one_of(SchedulingPolicy), default="fcfs")

_OPTIONS = (
    click.option("--profile", default="", help=f"Speed: {', '.join(profile_names())}, or a .toml file."),
    duration_option("--ttft", default="50ms", help="Time to a first token, without a profile."),
    duration_option("--tpot", default="10ms", help="Time from one token to the next, without a profile."),
    _ratio("--speedup", help="Divides all times; 0 means no time at all."),
    _ratio("--decode-speedup", help="Divides the times of decodes as well."),
    click.option("--seed", type=int, default=0, help="Decides all text and vectors."),
    _positive("--mean-length", help="Average tokens until an answer ends by itself; default: never."),
    _positive("--max-model-len", "--context-length", default=8192, help="Most tokens of a prompt and its answer."),
    _positive("--max-num-seqs", "--concurrency", default=256, help="Most requests in a step; others wait."),
    _positive("--max-loras", help="Most adapters in a step; default: any number."),
    _positive("--max-num-batched-tokens", default=8192, help="Most tokens in a step."),
    _positive("--block-size", default=16, help="Tokens in a block of the KV cache."),
    click.option(
        "--num-gpu-blocks",
        "total_gpu_blocks",
        type=click.IntRange(min=2),
        default=16384,
        help="Blocks of the KV cache.",
    ),
    _count("--host-blocks", help="Blocks of host memory to which requests are offloaded."),
    click.option("--host-bandwidth", type=Finite(min=1), default=25e9, help="Bytes per second to host memory."),
    _positive("--offload-within", "starvation_within", default=8, help="Passes before blocks run out to offload in."),
    _positive("--offload-safe-for", "safe_for", default=32, help="Passes that blocks must last for a return."),
    click.option(
        "--offload-order",
        "order",
        type=click.Choice(OFFLOAD_ORDERS),
        default=OFFLOAD_ORDERS[0],
        help="Which requests are offloaded first.",
    ),
    _count("--offload-guaranteed-tokens", "guaranteed_tokens", default=16, help="Tokens between two offloads of one."),
    _policy("--policy", help="Order of waiting requests."),
    _either("--chunked-prefill/--no-chunked-prefill", "chunked_prefill_enabled", help="Compute prompts in pieces."),
    _either("--prefix-caching/--no-prefix-caching", "enable_prefix_caching", help="Share equal prefixes."),
    _count("--long-prefill-token-threshold", help="Most tokens of one prompt in a step; 0 means no limit."),
    _positive("--max-num-active-seqs", help="Most running requests; default: --max-num-seqs."),
    _positive("--prefill-schedule-interval", default=1, help="While others run, admit only in every Nth step."),
    _either(
        "--reserve-full-sequence/--no-reserve-full-sequence",
        help="Admit a request only if all of its known tokens fit.",
    ),
    click.option(
        "--async-scheduling/--no-async-scheduling",
        default=None,
        help="Plan each step before the result of the one before; default: on, but not with --draft-method ngram.",
    ),
    _positive("--max-num-encoder-input-tokens", default=8192, help="Most tokens of images to encode in a step."),
    _positive("--encoder-cache-size", default=8192, help="Tokens of encoded images to keep."),
    click.option("--disable-chunked-mm-input", is_flag=True, help="Compute no image in pieces."),
    _share("--watermark", default=0.0, help="Share of all blocks that an admission leaves free."),
    _count("--num-spec-tokens", help="Tokens drafted for each step of a request."),
    _one_of(DraftMethod)(
        "--draft-method", default="eagle", help="Method of drafting, which decides the cost of drafts."
    ),
    _share("--draft-acceptance", default=0.7, help="Chance of each draft to be accepted."),
)


def core_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an engine core to a command, which gets them as ``core``, a ``CoreSettings``."""

    @wraps(command)
    def with_core(**flags: Any) -> Any:
        constants = {name: flags.pop(name) for name in _CONSTANTS & flags.keys()}
        constants |= _measured_limits(click.get_current_context(), flags["profile"])
        settings = {name: flags.pop(name) for name in _SETTINGS & flags.keys()}
        offload = {name: flags.pop(name) for name in _OFFLOAD & flags.keys()}
        try:
            core = msgspec.convert({**settings, "constants": constants, "offload": offload}, CoreSettings)
        except msgspec.ValidationError as error:
            raise click.UsageError(str(error)) from None
        return command(core=core, **flags)

    for option in reversed(_OPTIONS):
        with_core = option(with_core)
    return with_core


def _measured_limits(ctx: click.Context, profile: str) -> dict[str, Any]:
    """The limits in the profile that is given on this command line, but for those given there too."""

    def is_given(name: str) -> bool:
        return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE

    if not profile or not is_given("profile"):
        return {}
    try:
        limits = msgspec.structs.asdict(load_profile(profile).limits)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    return {name: limit for name, limit in limits.items() if limit is not None and not is_given(name)}


def reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Print an ``EnginehouseError`` of the command as click prints errors."""

    @wraps(command)
    def run(*arguments: Any, **flags: Any) -> None:
        try:
            command(*arguments, **flags)
        except EnginehouseError as error:
            raise click.ClickException(str(error)) from error

    return run


def with_flags(core: CoreSettings, flags: Sequence[str]) -> CoreSettings:
    """The settings of an engine that is started with ``flags``. ``core`` has the defaults.

    Flags of the engine's server are ignored. Raises ``ConfigError``.
    """
    settings = msgspec.to_builtins(core)
    durations = {name: f"{settings[name]}s" for name in ("ttft", "tpot")}
    defaults = {**settings, **settings["constants"], **settings["offload"], **durations}
    try:
        context = _core_of_flags.make_context("sim", list(flags), default_map=defaults)
        changed: CoreSettings = _core_of_flags.invoke(context)
    except click.ClickException as error:
        raise ConfigError(error.format_message(), key="args") from error
    return msgspec.structs.replace(
        changed, constants=msgspec.structs.replace(core.constants, **_given(changed.constants))
    )


def _given(constants: SchedulerConstants) -> dict[str, Any]:
    """The limits that have an option."""
    options = {parameter.name for parameter in _core_of_flags.params}
    return {name: getattr(constants, name) for name in constants.__struct_fields__ if name in options}


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@core_options
def _core_of_flags(core: CoreSettings) -> CoreSettings:
    return core
