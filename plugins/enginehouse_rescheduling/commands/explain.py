"""``enginehouse explain rescheduling``: which live requests would move, and which would not."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse.commands import config_option
from enginehouse.rescheduling import Plan
from enginehouse_kit.output import print_json, printable
from enginehouse_kit.view_file import read_view
from enginehouse_rescheduling.rounds.planner import build_planner
from enginehouse_rescheduling.rounds.recent_moves import RecentMoves


@click.command()
@config_option
@click.option(
    "--view",
    metavar="VIEW.json",
    type=click.Path(path_type=Path, allow_dash=True),
    required=True,
    help="The instances and their figures; - is stdin.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rescheduling(config: Path | None, view: Path, as_json: bool) -> None:
    """Show the migrations that the policies would plan.

    The policies are those of [rescheduling]; the pairs that they drop are shown too.

    VIEW.json holds {"now_ms": 0, "instances": [{"id": "gpu-1", "role": "decode", "status": {...}}]}; the names in
    status are Llumnix's. No request has moved before, so no instance rests.
    """
    from enginehouse_offline.offline_gateway import OfflineGateway  # much that the help does not need

    gateway, given = OfflineGateway(config), read_view(view)
    plan = build_planner(gateway).plan(given, RecentMoves(gateway.table("rescheduling").cool_down))
    if as_json:
        print_json(msgspec.json.encode(_shape(plan)))
    else:
        _print(plan)


def _shape(plan: Plan) -> dict[str, object]:
    """The JSON object of a plan. ``requests`` appears only where a policy names them."""
    migrations = [msgspec.to_builtins(each) for each in plan.migrations]
    for migration in migrations:
        if not migration["requests"]:
            del migration["requests"]
    return {"migrations": migrations, "dropped": plan.dropped}


def _print(plan: Plan) -> None:
    table = Table("policy", "source", "destination", "moves", "why not")
    for migration in plan.migrations:
        moves = f"{migration.rule} {migration.order} {migration.value:g}"
        table.add_row(*map(printable, (migration.policy, migration.source, migration.destination, moves)), "")
    for pair in plan.dropped:
        table.add_row(*map(printable, (pair.policy, pair.source, pair.destination)), "", printable(pair.why))
    if table.row_count:
        Console().print(table)
    else:
        click.echo("nothing moves")
