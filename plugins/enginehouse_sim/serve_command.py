"""``enginehouse sim serve``, which is ``python -m enginehouse_sim`` as well."""

from __future__ import annotations

from typing import Any

import click

from enginehouse import EnginehouseError
from enginehouse_sim.core.options import core_options, duration_option

_PORT = click.IntRange(0, 65535)
_ROLES = ("neutral", "prefill", "decode")


def _names(ctx: click.Context, param: click.Parameter, modules: tuple[str, ...]) -> tuple[str, ...]:
    """The names of ``NAME=PATH``; there is nothing to load from a path."""
    return tuple(module.partition("=")[0] for module in modules)


@click.command(context_settings={"show_default": True})
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=_PORT, default=8000, help="Port to listen on; 0 picks a free one, which is printed.")
@click.option("--control-port", type=_PORT, help="A second port, which answers while a 'refuse' fault is set.")
@click.option("--model", "models", multiple=True, default=("sim",), help="Name to serve; may be given several times.")
@click.option("--lora-modules", "loras", multiple=True, callback=_names, help="Adapter to serve as NAME or NAME=PATH.")
@core_options
@click.option("--api-key", help="Ask for this key on all pages under /v1.")
@duration_option("--start-delay", default="0", help="Time until it listens, as if a model were loaded.")
@click.option("--vision/--no-vision", default=None, help="Publish whether images are understood.")
@click.option("--tools/--no-tools", default=None, help="Publish whether tools are understood.")
@click.option("--json-mode/--no-json-mode", default=None, help="Publish whether JSON can be asked for.")
@click.option("--instance-id", default="", help="Name in a cluster; HOST:PORT if left out.", show_default=False)
@click.option("--node", default="", help="Machine that it says it is on.", show_default=False)
@click.option("--unit", default="", help="Unit of engines that it says it belongs to.", show_default=False)
@click.option("--role", type=click.Choice(_ROLES), default="neutral", help="Role that it says it has.")
@click.option("--llumlet-port", type=_PORT, help="Take commands to move requests there, over gRPC; 0 picks a port.")
@click.option("--kv-bandwidth", type=click.FloatRange(min=1), default=64e9, help="Bytes a second between engines.")
def serve(**flags: Any) -> None:
    """Serve simulated models over the OpenAI API: deterministic text, at the pace asked for, without a GPU."""
    from enginehouse_sim.process import run  # after the flags are checked: this brings the whole server in
    from enginehouse_sim.server.settings import Settings

    try:
        run(Settings(**flags), click.echo)
    except EnginehouseError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot listen on {flags['host']}, port {flags['port']}: {error}") from error
