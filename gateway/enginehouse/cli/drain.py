"""``enginehouse drain`` and ``undrain``: take a backend out of service, and back."""

from __future__ import annotations

import click

from enginehouse.cli.client import GatewayClient, gateway_options


@click.command()
@gateway_options
@click.argument("backend")
def drain(gateway: GatewayClient, backend: str) -> None:
    """Send no new requests to BACKEND; its live requests continue."""
    gateway.post("api", "backends", backend, "drain")
    click.echo(f"{backend} gets no new requests")


@click.command()
@gateway_options
@click.argument("backend")
def undrain(gateway: GatewayClient, backend: str) -> None:
    """Send requests to BACKEND again."""
    gateway.post("api", "backends", backend, "undrain")
    click.echo(f"{backend} gets requests again")
