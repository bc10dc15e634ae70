"""Makes views of the cluster again and again, plans, and carries plans out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.domain.instance import ClusterView
from enginehouse.domain.migration import Plan
from enginehouse.engines.probing.status_puller import StatusPuller
from enginehouse.rescheduling.cluster import Cluster
from enginehouse.rescheduling.dispatcher import MigrationDispatcher, MigrationRecord
from enginehouse.rescheduling.planner import Planner
from enginehouse.rescheduling.recent_moves import RecentMoves

_FIGURES_EVERY_S = 1.0
"""How often engines are asked for figures that only routing reads: it counts its own requests at once."""
_log = logging.getLogger(__name__)


class Rescheduler:
    """The rounds of ``[rescheduling]``. Without ``enabled`` there are none; routing reads the engines' figures anyway.

    ``on_view`` gets the view of each round first. Plans are made in a thread, so that the event loop is free.
    """

    def __init__(
        self,
        settings: ReschedulingSettings,
        *,
        puller: StatusPuller,
        cluster: Cluster,
        planner: Planner,
        dispatcher: MigrationDispatcher,
        recent: RecentMoves,
        on_view: Callable[[ClusterView, ReschedulingSettings], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._seconds = clock.now
        self._settings = settings
        self._puller = puller
        self._cluster = cluster
        self._planner = planner
        self._dispatcher = dispatcher
        self._recent = recent
        self._on_view = on_view
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Ask engines for their figures, and begin with the rounds if they are configured."""
        self._puller.start(self._settings.interval if self._settings.enabled else _FIGURES_EVERY_S)
        if self._settings.enabled and self._settings.mode == "colocated":
            self._tasks.start(self._run())

    def stop(self) -> None:
        """Stop, and cancel migrations in progress."""
        self._tasks.cancel()
        self._puller.stop()

    async def view(self) -> ClusterView:
        """The cluster now."""
        if not self._settings.enabled:
            await self._puller.pull()
        return await self._cluster.view(lambda instance: True)

    def records(self) -> Sequence[MigrationRecord]:
        """The last migrations, oldest first."""
        return tuple(self._dispatcher.records)

    async def round(self) -> None:
        """Make a view, plan and move once."""
        view = await self._cluster.view(self._planner.reads_streams)
        self._on_view(view, self._settings)
        plan = await asyncio.to_thread(self._planner.plan, view, self._recent)
        await self._dispatcher.carry_out(_with_live_requests(plan, view), view)

    async def _run(self) -> None:
        """A round begins after every interval, or when the last one has ended if that is later."""
        while True:
            began = self._seconds()
            try:
                await self.round()
            except Exception:
                _log.exception("A round of rescheduling failed")
            await asyncio.sleep(max(0.0, self._settings.interval - (self._seconds() - began)))


def _with_live_requests(plan: Plan, view: ClusterView) -> Plan:
    """The plan without migrations from instances where no request of this gateway runs, such as drained ones."""
    busy = {each.id for each in view.instances if each.requests}
    return Plan(migrations=tuple(each for each in plan.migrations if each.source in busy), dropped=plan.dropped)
