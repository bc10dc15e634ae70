"""What one engine is launched by, and spoken with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import EnginehouseError
from enginehouse.engines.host_launcher import HostLauncher
from enginehouse.engines.host_replicas import ManagedReplica
from enginehouse.engines.launch_line import ModelLaunch
from enginehouse.engines.probing.health_check import HealthCheck
from enginehouse.engines.start_errors import StartErrors
from enginehouse.engines.start_limits import longest_silence
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_QUESTION_S = 5.0
"""The time limit of a question that a ready engine need not answer."""
_NOWHERE = Place(port=0)


class EngineRun(NamedTuple):
    """One run of an engine. ``client`` speaks with it. ``first_line``: the number of the first line that it printed."""

    process: EngineProcess
    client: EngineClient
    place: Place
    first_line: int


class EngineSetup:
    """What the engine of ``managed`` is launched by, and spoken with.

    ``connect`` makes a client from the engine's address. ``log`` outlives the engine: a restarted one continues it.
    ``gpus``: the ``CUDA_VISIBLE_DEVICES`` of the next launch, empty for none. ``launch`` makes its lines.
    ``version`` grows when engines launched so far do not fit the settings any more.
    ``may_sleep``: it is put to sleep when it is idle or evicted.
    """

    def __init__(self, managed: ManagedReplica, launcher: HostLauncher, connect: Callable[[str], EngineClient]) -> None:
        self.name = managed.engine
        self.launcher = launcher
        self.connect = connect
        self.log = LogRing()
        self.errors = StartErrors(managed.model_name, self.log)
        self.gpus = ""
        self.version = 0
        self._kept_place: Place | None = None
        self.reconfigure(managed)

    def reconfigure(self, managed: ManagedReplica) -> None:
        """Use these settings from now on. A running engine continues as it was launched."""
        self.managed = managed
        self.may_sleep = managed.model.sleeps
        self._needs = self.launcher.needs(managed)
        self.look_again()

    def look_again(self) -> None:
        """Make launch lines by the files of now."""
        managed = self.managed
        self.launch = ModelLaunch(
            managed.model_name, managed.model, managed.driver.launch, managed.rules, backend=self.name
        )

    @property
    def elsewhere(self) -> bool:
        """Whether the model is loaded on a server that runs already."""
        return self.managed.server is not None

    async def why_not(self) -> str:
        """Why the engine cannot be launched on this machine, with a remedy; empty if it may, or runs elsewhere."""
        launcher, model, driver = self.launcher, self.managed.model, self.managed.driver.launch
        if launcher.places:
            return ""
        why = await launcher.why_not(self.launch.line(_NOWHERE), () if model.source else self.launch.files)
        return f"{why} ({driver.how_to_install})" if why and driver.how_to_install and not model.command else why

    async def find_room(self, waits: Callable[[str], None]) -> None:
        """Find a place now, if no machine has room for the engine: one may still come.

        Raises as ``find_place``.
        """
        if self.launcher.places and (why := await self.launcher.no_room(self._needs)):
            waits(why)
            try:
                self._kept_place = await self.find_place(waits)
            except TimeoutError:
                raise self.errors.unplaced(self.managed.model.place_timeout, why, self.log.written) from None

    async def give_place_up(self) -> None:
        """Free the place of ``find_room``, unless an engine was launched there."""
        place, self._kept_place = self._kept_place, None
        if place is not None:
            await self.launcher.release(self.name, place)

    async def find_place(self, waits: Callable[[str], None]) -> Place:
        """A place for the engine. Calls ``waits`` with the reason why there is none yet.

        Raises ``TimeoutError`` after ``place_timeout``, and what the launcher raises.
        """
        if self.elsewhere:
            return _NOWHERE
        kept, self._kept_place = self._kept_place, None
        if kept is not None:
            return kept
        finding = self.launcher.place(self.name, self._needs, waits)
        found = await run_within(self.managed.model.place_timeout or None, finding)
        return found or self.launcher.own_place()  # not in the task: a start that is cancelled now would keep the port

    def launch_line(self, place: Place) -> LaunchLine:
        """The launch line of the engine in ``place``. Raises ``ConfigError``."""
        return LaunchLine(command=(), port=place.port) if self.elsewhere else self.launch.line(place, self.gpus)

    async def start(self, line: LaunchLine) -> EngineProcess:
        """Launch the engine, or load the model on its server."""
        server, model = self.managed.server, self.managed.model
        async with self.launcher.ownership.act():
            if server is not None:
                return await server.load(self.managed.model_name, longest_silence(model), self.log)
            return await self.launcher.launch(self.name, line, self.log)

    def footprint_key(self) -> str | None:
        """The name under which the memory of an engine with this launch line is known; ``None`` if it has none."""
        try:
            return None if self.elsewhere else f"{self.managed.model_name} {self.launch.fingerprint}"
        except EnginehouseError:
            return None

    async def until_healthy(self, run: EngineRun, note: Callable[[str], None]) -> None:
        """Wait until the engine is healthy; ``note`` gets each problem meanwhile.

        Raises ``LoadFailed`` if the engine exits first.
        """
        printed = asyncio.Event()
        self.log.follow(printed)
        healthy = asyncio.ensure_future(self._is_healthy(run, printed, note))
        exited = asyncio.ensure_future(run.process.exited())
        try:
            await asyncio.wait({healthy, exited}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                raise self.errors.exited_early(exited.result(), run.first_line)
            healthy.result()
        finally:
            self.log.unfollow(printed)
            healthy.cancel()
            exited.cancel()
            del healthy, exited  # a failure refers to this frame, and its task to the failure

    async def _is_healthy(self, run: EngineRun, printed: asyncio.Event, note: Callable[[str], None]) -> None:
        await run.process.listening()
        check = HealthCheck(self.managed.driver.driver, self.managed.model.health_path)
        await check.wait_until_healthy(run.client, printed, note)

    async def concurrency(self, run: EngineRun) -> int | None:
        """The number of requests that the ready engine reports to serve at once; ``None`` if it reports none."""
        if self.managed.model.concurrency:
            return None
        try:
            return await run_within(_QUESTION_S, self.managed.driver.figures.concurrency(run.client))
        except Exception as error:
            _log.debug("%s does not report its concurrency: %s", self.name, error or type(error).__name__)
            return None

    async def sleep(self, run: EngineRun) -> bool:
        """Put the engine to sleep; whether it agreed within ``stop_timeout``."""
        return await self._agrees(self.managed.driver.sleep.sleep_as_launched, run, self.managed.model.stop_timeout)

    async def wake(self, run: EngineRun) -> bool:
        """Wake the engine; whether it agreed within ``start_timeout`` and ``start_silence``."""
        return await self._agrees(self.managed.driver.sleep.wake_as_launched, run, longest_silence(self.managed.model))

    async def _agrees(
        self, ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]], run: EngineRun, timeout: float
    ) -> bool:
        try:
            return await run_within(timeout, ask(run.client, self.launch.spec(run.place)))
        except Exception as error:
            _log.warning("%s could not be put to sleep or woken: %s", self.name, error or type(error).__name__)
            return False
