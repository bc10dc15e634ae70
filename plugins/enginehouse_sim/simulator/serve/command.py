"""The command ``enginehouse sim serve``, also ``python -m enginehouse_sim``."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from enginehouse_sim.simulator.core.options import Finite, core_options, duration_option
from enginehouse_sim.simulator.server.simulation import KvEventsConfig

_PORT = click.IntRange(0, 65535)
_ROLES = ("neutral", "prefill", "decode")
_EXTRAS = {"grpc": "llumlet", "google": "llumlet", "zmq": "kv-events"}
"""The extra of each package that only some options need."""


def _names(ctx: click.Context, param: click.Parameter, modules: tuple[str, ...]) -> tuple[str, ...]:
    """The names in ``NAME=PATH``; the paths are not read."""
    return tuple(module.partition("=")[0] for module in modules)


def _kv_events(ctx: click.Context, param: click.Parameter, text: str | None) -> KvEventsConfig | None:
    if text is None:
        return None
    try:
        config = msgspec.json.decode(text, type=KvEventsConfig)
    except msgspec.DecodeError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return config if config.enable_kv_cache_events else None


@click.command(context_settings={"show_default": True})
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=_PORT, default=8000, help="Port to listen on; 0 picks a free one and prints it.")
@click.option("--control-port", type=_PORT, help="A second port, which answers while a 'refuse' fault is set.")
@click.option("--model", "models", multiple=True, default=("sim",), help="Name to serve; may be given several times.")
@click.option("--lora-modules", "loras", multiple=True, callback=_names, help="Adapter to serve as NAME or NAME=PATH.")
@core_options
@click.option("--api-key", help="Key required on all pages under /v1.")
@duration_option("--start-delay", default="0", help="Time until it listens, as if it loaded a model.")
@click.option("--vision/--no-vision", default=None, help="Publish whether images are supported.")
@click.option("--tools/--no-tools", default=None, help="Publish whether tools are supported.")
@click.option("--json-mode/--no-json-mode", default=None, help="Publish whether JSON mode is supported.")
@click.option("--instance-id", default="", help="Name in a cluster; default: HOST:PORT.", show_default=False)
@click.option("--node", default="", help="Node in a cluster.", show_default=False)
@click.option("--unit", default="", help="Unit in a cluster.", show_default=False)
@click.option("--role", type=click.Choice(_ROLES), default="neutral", help="Role in a cluster.")
@click.option("--llumlet-port", type=_PORT, help="Port for migration commands over gRPC; 0 picks one.")
@click.option("--kv-bandwidth", type=Finite(min=1), default=64e9, help="Bytes per second between engines.")
@click.option("--kv-events-config", "kv_events", callback=_kv_events, metavar="JSON", help="Publish KV events.")
def serve(**flags: Any) -> None:
    """Serve simulated models over the OpenAI API.

    They write deterministic text at a configured pace, without a GPU."""
    from enginehouse_sim.simulator.serve.process import (
        run,  # imports the whole server: only once the flags are valid
    )
    from enginehouse_sim.simulator.server.simulation import Settings

    try:
        run(Settings(**flags), click.echo)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise click.ClickException(
            f"there is no package {package}: pip install 'enginehouse[{_EXTRAS[package]}]'"
        ) from None
