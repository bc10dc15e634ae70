"""``enginehouse explain swap``: which models would stop so that another can run."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from enginehouse.commands import config_option
from enginehouse.errors import NotFound
from enginehouse.tickets import SwapPlan
from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_kit.output import print_json


@click.command()
@config_option
@click.argument("model", required=False)
@click.option("--target", metavar="MODEL", help="The model to run; the same as MODEL.")
@click.option("--running", metavar="A,B", default="", help="Running models, least recently used first.")
@click.option("--url", help="Ask this running gateway: its models run.")
@click.option("--admin-key", envvar="ENGINEHOUSE_KEY", help="The admin key for --url; else $ENGINEHOUSE_KEY.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def swap(
    config: Path | None,
    model: str | None,
    target: str | None,
    running: str,
    url: str | None,
    admin_key: str | None,
    as_json: bool,
) -> None:
    """Show which models would stop so that MODEL can run.

    Also which models would then run, and by which rule. With --url, the running gateway answers; --running then
    replaces the models that run there.

    A model that cannot run is an error.
    """
    wanted = model or target
    if not wanted or (model and target and model != target):
        raise click.UsageError("Name one model: enginehouse explain swap MODEL")
    names = [name.strip() for name in running.split(",") if name.strip()]
    if url is not None:
        gateway = GatewayClient(url, admin_key)
        question = {"target": wanted, **({"running": names} if names else {})}
        plan = gateway.read(gateway.post("api", "explain", "swap", body=question), SwapPlan)
    else:
        from enginehouse_offline.offline_gateway import OfflineGateway  # much that the help does not need

        try:
            plan = OfflineGateway(config).explain_swap(wanted, names)
        except NotFound as error:
            raise NotFound(f"{error}. To ask a running gateway, give its --url", details=error.details) from None
    if as_json:
        print_json(msgspec.json.encode(plan))
    else:
        click.echo(_verdict(plan))


def _verdict(plan: SwapPlan) -> str:
    stops = f"stops {', '.join(plan.evict)}" if plan.evict else "stops nothing"
    rule = f", set '{plan.set_name}'" if plan.set_name is not None else ""
    cost = f", cost {plan.cost}" if plan.cost is not None else ""
    return f"'{plan.target}' {stops}; then run: {', '.join(plan.set)}{rule}{cost}"
