"""``enginehouse reload``: a running gateway reads its configuration again."""

from __future__ import annotations

import click

from enginehouse.app.config_diff import ConfigDiff
from enginehouse.app.reload import Reloaded
from enginehouse.cli.client import GatewayClient, gateway_options
from enginehouse.cli.options import answer_as_json
from enginehouse.cli.output import print_json, warn

_TIMEOUT_S = 60.0


@click.command()
@gateway_options
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
@answer_as_json
def reload(gateway: GatewayClient, dry_run: bool, as_json: bool) -> None:
    """Have the gateway read its configuration again.

    What changed is printed.

    Requests continue, and so do the engines of unchanged models. An error in the configuration changes nothing.
    """
    answer = gateway.post("api", "reload", query="?dry_run=true" if dry_run else "", timeout=_TIMEOUT_S)
    if as_json:
        print_json(answer)
        return
    reloaded = gateway.read(answer, Reloaded)
    for warning in reloaded.warnings:
        warn(warning)
    for line in reloaded.changes.lines():
        click.echo(line)
    if reloaded.changes == ConfigDiff():
        click.echo("nothing to change" if dry_run else "nothing changed")
    if reloaded.changes.needs_restart:
        warn(f"needs a restart: {', '.join(reloaded.changes.needs_restart)}")
