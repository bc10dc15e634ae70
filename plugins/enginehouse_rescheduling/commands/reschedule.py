"""``enginehouse reschedule``: move live requests of gateways that run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from enginehouse import GatewayError
from enginehouse.commands import config_option, warn
from enginehouse.rescheduling import Migrated, Migration, ReschedulingSettings
from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_rescheduling.commands.far_gateway import RemoteRescheduler
from enginehouse_rescheduling.rounds.planner import build_planner
from enginehouse_rescheduling.rounds.recent_moves import RecentMoves

_MOST_AT_ONCE = 32


@click.command()
@config_option
@click.option("--gateway", "urls", metavar="URL", multiple=True, required=True, help="A gateway; may be repeated.")
@click.option("--key", envvar="ENGINEHOUSE_KEY", metavar="KEY", help="An admin key of the gateways.", show_envvar=True)
@click.option("--once", is_flag=True, help="One round, then stop.")
def reschedule(config: Path | None, urls: tuple[str, ...], key: str | None, once: bool) -> None:
    """Make gateways move requests, as [rescheduling] plans.

    It runs until it is interrupted.

    It plans for each gateway separately. Use it for gateways with rescheduling.mode = "standalone" or without
    rescheduling. Several of these commands may run: a gateway does not move a request that is already moving.
    """
    from enginehouse_offline.offline_gateway import OfflineGateway  # much that the help does not need

    offline = OfflineGateway(config)
    settings: ReschedulingSettings = offline.table("rescheduling")
    reschedulers = [
        RemoteRescheduler(
            GatewayClient(url, key),
            build_planner(offline),
            RecentMoves(settings.cool_down),
            timeout=settings.migrate_timeout,
            on_end=_tell,
        )
        for url in urls
    ]
    if not once:
        click.echo(f"watching {', '.join(urls)} every {settings.interval:g} s")
    _run(reschedulers, None if once else settings.interval)


def _run(reschedulers: Sequence[RemoteRescheduler], interval: float | None) -> None:
    """One round after the other; only one without an ``interval``."""
    with ThreadPoolExecutor(_MOST_AT_ONCE) as executor:
        while True:
            began = time.monotonic()
            for rescheduler in reschedulers:
                _round(rescheduler, executor, once=interval is None)
            if interval is None:
                return
            time.sleep(max(0.0, interval - (time.monotonic() - began)))


def _round(rescheduler: RemoteRescheduler, executor: ThreadPoolExecutor, *, once: bool) -> None:
    try:
        rescheduler.round(executor)
    except GatewayError as error:
        if once:
            raise
        warn(str(error))


def _tell(migration: Migration, migrated: Migrated) -> None:
    refused = "".join(f"; '{name}' stays: {why}" for name, why in migrated.refused.items())
    ends = f"{migration.source} -> {migration.destination}"
    click.echo(f"{migration.policy}: {ends}: {len(migrated.moved)} moved{refused}")
