"""``enginehouse load`` and ``unload``: which models the gateway keeps ready."""

from __future__ import annotations

import click

from enginehouse.cli.client import GatewayClient, gateway_options

_LOAD_TIMEOUT_S = 3600.0


@click.command()
@gateway_options
@click.argument("model")
def load(gateway: GatewayClient, model: str) -> None:
    """Load MODEL, or what it is an alias of, which the gateway launches, and wait until it is ready."""
    gateway.post("api", "models", model, "load", timeout=_LOAD_TIMEOUT_S)
    click.echo(f"{model} is ready")


@click.command()
@gateway_options
@click.argument("model", required=False)
def unload(gateway: GatewayClient, model: str | None) -> None:
    """Unload MODEL, or every model that the gateway launched, and wait until it is gone."""
    if model is None:
        gateway.post("unload", timeout=_LOAD_TIMEOUT_S)
    else:
        gateway.post("api", "models", model, "unload", timeout=_LOAD_TIMEOUT_S)
    click.echo(f"{model or 'Every model'} is unloaded")
