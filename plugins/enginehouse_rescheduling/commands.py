"""The commands ``enginehouse explain rescheduling`` and ``enginehouse reschedule``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event
from typing import Protocol, TypeVar

import click
import msgspec

from enginehouse import GatewayError
from enginehouse.commands import config_option, warn
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.files import read_view
from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_kit.output import print_json, print_table
from enginehouse_kit.rescheduling import ClusterView, Migrated, Migration, Plan
from enginehouse_kit.selection import migration_budget, select_requests
from enginehouse_rescheduling.planner import Planner, RecentMoves, build_planner

T = TypeVar("T")

_MOST_AT_ONCE = 32


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
    moving = [
        (each.policy, each.source, each.destination, f"{each.rule} {each.order} {each.value:g}", "")
        for each in plan.migrations
    ]
    dropped = [(each.policy, each.source, each.destination, "", each.why) for each in plan.dropped]
    headings = ("policy", "source", "destination", "moves", "why not")
    print_table(headings, [*moving, *dropped], empty="nothing moves")


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
    """One round after the other for each gateway, so that a slow one delays no other; only one without ``interval``."""
    stopped = Event()
    with ThreadPoolExecutor(_MOST_AT_ONCE) as moves, ThreadPoolExecutor(len(reschedulers)) as rounds:
        ends = [rounds.submit(_rounds, each, moves, interval, stopped) for each in reschedulers]
        try:
            for end in as_completed(ends):
                end.result()
        finally:
            stopped.set()


def _rounds(rescheduler: RemoteRescheduler, moves: Executor, interval: float | None, stopped: Event) -> None:
    if interval is None:
        rescheduler.round(moves)
        return
    while not stopped.is_set():
        began = time.monotonic()
        try:
            rescheduler.round(moves)
        except GatewayError as error:
            warn(str(error))
        stopped.wait(max(0.0, interval - (time.monotonic() - began)))


def _tell(migration: Migration, migrated: Migrated) -> None:
    refused = "".join(f"; '{name}' stays: {why}" for name, why in migrated.refused.items())
    ends = f"{migration.source} -> {migration.destination}"
    click.echo(f"{migration.policy}: {ends}: {len(migrated.moved)} moved{refused}")


class AskGateway(Protocol):
    """A running gateway. Methods raise ``GatewayError``."""

    def get(self, path: str) -> bytes:
        """Return the answer to ``GET``."""

    def post(self, *path: str, query: str = "", body: object = None, timeout: float = ...) -> bytes:
        """Return the answer to ``POST``."""

    def read(self, answer: bytes, type: type[T]) -> T:
        """Decode an answer."""


class RemoteRescheduler:
    """The rounds for one gateway. Streams move as with the migrator ``replay``, at most ``timeout`` seconds each.

    ``recent``: the last moves. ``on_end`` is called after each migration with its result.
    """

    def __init__(
        self,
        gateway: AskGateway,
        planner: Planner,
        recent: RecentMoves,
        *,
        timeout: float,
        on_end: Callable[[Migration, Migrated], None],
    ) -> None:
        self._gateway = gateway
        self._planner = planner
        self._recent = recent
        self._timeout = timeout
        self._on_end = on_end

    def round(self, executor: Executor) -> None:
        """Get a view, plan, and move all requests at once. Raises ``GatewayError`` if the gateway shows no view."""
        view = self._gateway.read(self._gateway.get("/api/cluster"), ClusterView)
        plan = self._planner.plan(view, self._recent)
        chosen = [(migration, _chosen(migration, view)) for migration in plan.migrations]
        moves = [
            (migration, {name: executor.submit(self._move, name, migration.destination) for name in names})
            for migration, names in chosen
        ]
        for migration, futures in moves:
            problems = {name: future.result() for name, future in futures.items()}
            migrated = Migrated(
                moved=tuple(name for name, why in problems.items() if not why),
                refused={name: why for name, why in problems.items() if why},
            )
            self._recent.note(migration, migrated, view.now_ms)
            self._on_end(migration, migrated)

    def _move(self, request: str, destination: str) -> str:
        """Why the request stays; empty if it has moved."""
        try:
            self._gateway.post("api", "requests", request, "move", body={"to": destination}, timeout=self._timeout)
        except GatewayError as error:
            return str(error)
        return ""


def _chosen(migration: Migration, view: ClusterView) -> Sequence[str]:
    source = next(each for each in view.instances if each.id == migration.source)
    budget = migration_budget(migration.rule, migration.value, source.status.num_total_gpu_tokens)
    return migration.requests or select_requests(source.requests, migration.rule, migration.order, budget)
