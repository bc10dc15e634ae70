"""The command-line options of an engine core."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, get_args

import click
import msgspec
from click.core import ParameterSource

from enginehouse import ConfigError, parse_duration
from enginehouse_sim.options import CORE_FLAGS, DURATION, CoreFlag, CoreSettings, OffloadSettings, SchedulerConstants
from enginehouse_sim.simulator.steps.profile import load_profile, profile_names


class Finite(click.FloatRange):
    """A number in a range; neither infinite nor ``nan``, which click takes for one in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


POSITIVE = click.IntRange(min=1)


@contextmanager
def progress(name: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on standard error. Yields a function that takes the share of the work that is done, 0 to 1."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=1.0)
        yield lambda share: shown.update(task, completed=share)


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

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _core_option(flag: CoreFlag) -> Callable[..., Callable[..., Any]]:
    name, field = flag.name.replace("_", "-"), flag.field
    text = f"{flag.help[0].upper()}{flag.help[1:]}."
    if flag.type is DURATION:
        return duration_option(f"--{name}", field, default=flag.default, help=text)
    if flag.type is bool:
        return click.option(f"--{name}/--no-{name}", field, default=flag.default, help=text)
    kind: Any = click.STRING
    if flag.type is int:
        kind = click.INT if flag.least is None else click.IntRange(min=int(flag.least))
    elif flag.type is float:
        kind = Finite(min=flag.least, max=flag.most)
    elif flag.type is not str:
        kind = click.Choice(get_args(flag.type))
    else:
        text = f"Speed: {', '.join(profile_names())}, or a .toml file."
    aliases = [f"--{flag.alias.replace('_', '-')}"] if flag.alias else []
    return click.option(f"--{name}", *aliases, field, type=kind, default=flag.default, help=text)


def core_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an engine core to a command, which gets them as ``core``, a ``CoreSettings``."""

    @wraps(command)
    def with_core(**flags: Any) -> Any:
        constants = {name: flags.pop(name) for name in _CONSTANTS & flags.keys()}
        constants |= _measured_limits(click.get_current_context(), flags["profile"])
        settings = {name: flags.pop(name) for name in _SETTINGS & flags.keys()}
        offload = {name: flags.pop(name) for name in _OFFLOAD & flags.keys()}
        core = msgspec.convert({**settings, "constants": constants, "offload": offload}, CoreSettings)
        return command(core=core, **flags)

    engine: Callable[..., Any] = with_core
    for flag in reversed(CORE_FLAGS):
        engine = _core_option(flag)(engine)
    return engine


def _measured_limits(ctx: click.Context, profile: str) -> dict[str, Any]:
    """The limits in the profile that is given on this command line, but for those given there too."""

    def is_given(name: str) -> bool:
        return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE

    if not profile or not is_given("profile"):
        return {}
    limits = msgspec.structs.asdict(load_profile(profile).limits)
    return {name: limit for name, limit in limits.items() if limit is not None and not is_given(name)}


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
    return changed


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@core_options
def _core_of_flags(core: CoreSettings) -> CoreSettings:
    return core
