"""``enginehouse reload``: a running gateway reads its configuration anew."""

from __future__ import annotations

import click

from enginehouse.app.plan import Plan
from enginehouse.app.reload import Reloaded
from enginehouse.cli.client import GatewayClient, gateway_options
from enginehouse.cli.output import print_json, warn

_TIMEOUT_S = 60.0


@click.command()
@gateway_options
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print what the gateway answers.")
def reload(gateway: GatewayClient, dry_run: bool, as_json: bool) -> None:
    """Have the gateway read its configuration again, and say what changed.

    Requests go on, and so do the engines of models that did not change. If anything is wrong with the configuration,
    everything stays as it was.
    """
    answer = gateway.post("api", "reload", query="?dry_run=true" if dry_run else "", timeout=_TIMEOUT_S)
    if as_json:
        print_json(answer)
        return
    told = gateway.read(answer, Reloaded)
    for warning in told.warnings:
        warn(warning)
    for line in told.changes.lines():
        click.echo(line)
    if told.changes == Plan():
        click.echo("nothing to change" if dry_run else "nothing changed")
    if told.changes.needs_restart:
        warn(f"needs a restart: {', '.join(told.changes.needs_restart)}")
