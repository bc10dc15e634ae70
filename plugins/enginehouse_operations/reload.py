"""``enginehouse reload``: a running gateway reads its configuration again."""

from __future__ import annotations

import click

from enginehouse.commands import warn
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json

_TIMEOUT_S = 60.0


@click.command()
@gateway_options
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
@click.option("--take-over", is_flag=True, help="Let a new gateway take over, for changes that need a restart.")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer.")
def reload(gateway: GatewayClient, dry_run: bool, take_over: bool, as_json: bool) -> None:
    """Make the gateway read its configuration again.

    What changed is printed.

    Requests continue, and so do the engines of unchanged models. An error in the configuration changes nothing. With
    --take-over, a new process takes over: it has the new program and all of the configuration.
    """
    from enginehouse.app.reload import Reloaded  # much that the help does not need

    flags = {"dry_run": dry_run, "take_over": take_over}
    query = "&".join(f"{name}=true" for name, wanted in flags.items() if wanted)
    answer = gateway.post("api", "reload", query=f"?{query}" if query else "", timeout=_TIMEOUT_S)
    if as_json:
        print_json(answer)
        return
    reloaded = gateway.read(answer, Reloaded)
    for warning in reloaded.warnings:
        warn(warning)
    lines = [*reloaded.changes.lines()]
    for line in lines:
        click.echo(line)
    if not lines and not reloaded.changes.needs_restart:
        click.echo("nothing to change" if dry_run else "nothing changed")
    if reloaded.taken_over_by is not None:
        click.echo(f"process {reloaded.taken_over_by} has taken over")
    elif reloaded.changes.needs_restart:
        warn(f"needs a restart: {', '.join(reloaded.changes.needs_restart)}")
