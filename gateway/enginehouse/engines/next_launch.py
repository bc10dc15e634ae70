"""The next launch of one engine: its files, its GPUs, its place, and the process in the end."""

from __future__ import annotations

from typing import Protocol

from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine_cache import EngineCache
from enginehouse.engines.failures import StartErrors
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launch_line import ModelLaunch
from enginehouse.engines.launches import Launches
from enginehouse.engines.start import longest_silence
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing


class NotePhase(Protocol):
    """Takes what a launch waits for: the state of its engine, and how far it is or why it waits."""

    def __call__(self, state: ReplicaState, problem: str = "") -> None: ...


class NextLaunch:
    """Has what the next engine of ``managed`` needs, and launches it. A failure is ``LoadFailed``, or the launcher's.

    ``line``: its launch line. ``gpus``: its ``CUDA_VISIBLE_DEVICES``, empty for none. ``cache``: what is kept of its
    prefix cache while it does not run, if it ``keeps_cache``.
    """

    def __init__(self, managed: ManagedReplica, launches: Launches, log: LogRing, errors: StartErrors) -> None:
        self.cache = EngineCache(launches.caches, managed)
        self.gpus = ""
        self._engine, self._replica = managed.engine, managed.replica
        self._launches = launches
        self._log = log
        self._errors = errors
        self._kept: Place | None = None
        self.reconfigure(managed)

    def reconfigure(self, managed: ManagedReplica) -> None:
        """Use these settings from the next launch on."""
        model, driver = managed.model, managed.driver
        self._managed = managed
        self._needs = self._launches.needs(managed)
        self.keeps_cache = bool(model.keep_cache) and driver.cache is not None and managed.server is None
        self.line = ModelLaunch(
            managed.model_name,
            model,
            driver.launch,
            managed.rules,
            backend=self._engine,
            cache_folder=str(self.cache.folder) if self.keeps_cache else "",
        )

    # --- before other engines are stopped for it

    async def look_ahead(self, note: NotePhase) -> None:
        """Raise ``LoadFailed`` if the engine could not be launched even if others were stopped for it.

        If no machine could hold it even if no other one ran, a place is found now, and kept for its launch.
        """
        launches, model, driver = self._launches, self._managed.model, self._managed.driver.launch
        if not launches.places:
            files = () if model.source else self.line.files
            if why := await launches.why_not(self.line.nowhere, files):
                how = driver.how_to_install if not model.command else ""
                raise self._errors.did_not_start(f"{why} ({how})" if how else why)
        elif why := await launches.no_room(self._needs):
            note(ReplicaState.PLACING, why)
            self._kept = await self.find_place(note, why)

    async def give_up_place(self) -> None:
        """Free a place that was found ahead and not used."""
        place, self._kept = self._kept, None
        if place is not None:
            await self._launches.release(self._engine, place)

    # --- the launch

    async def have_gpus(self, *, is_asleep: bool) -> None:
        """Choose the GPUs of the engine, unless it ``is_asleep``, and wait until ended engines have freed them."""
        gpus, wanted, replica = self._launches.gpus, self._managed.model.gpus, self._replica
        if not is_asleep:
            chooses = wanted is not None or gpus.allowed is not None
            self.gpus = await gpus.assign(replica, wanted) if chooses else ""
        if gpus.now:
            await gpus.until_free(replica, self._launches.learned.measured.get(replica))

    async def have_files(self, note: NotePhase) -> None:
        """Have the files of a model that is to be downloaded. It takes as long as it takes."""
        source, downloads, last = self._managed.model.source, self._launches.downloads, ""
        if downloads is None:
            return

        def tell(how_far: str) -> None:
            nonlocal last
            if how_far != last:
                last = how_far
                self._log.write(f"downloading {source}: {how_far}\n".encode())
                note(ReplicaState.DOWNLOADING, how_far)

        def tell_bytes(done: int, total: int | None) -> None:
            from rich.filesize import decimal  # a gateway that downloads nothing does without

            tell(f"{done * 100 // total} % of {decimal(total)}" if total else decimal(done))

        tell("asking for its files")
        await downloads.fetch(source, self._managed.rules.pull, tell_bytes)
        self.line.look_again()
        note(ReplicaState.STARTING)

    async def find_place(self, note: NotePhase, why: str = "") -> Place:
        """The place that is kept, else one for which the engine may have to wait; ``why`` it may."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        timeout = self._managed.model.place_timeout

        def waits(now: str) -> None:
            nonlocal why
            why = now
            note(ReplicaState.PLACING, now)

        try:
            return await self._launches.find_place(self._engine, self._needs, timeout, waits)
        except TimeoutError:
            raise self._errors.unplaced(timeout, why) from None

    async def begin(self, place: Place) -> EngineProcess:
        """Launch the engine in ``place``, or have its server load the model, as one act."""
        launches, managed, server = self._launches, self._managed, self._managed.server
        if server is not None:
            async with launches.ownership.act():
                return await server.load(managed.model_name, longest_silence(managed.model), self._log)
        line = self.line.line(place, self.gpus)
        if line.place is not None and (why := await launches.why_not(line, self.line.files)):
            raise self._errors.did_not_start(why)
        async with launches.ownership.act():
            if self.keeps_cache and str(self.cache.folder) in " ".join(line.command):
                await self._prepare_cache(line)
            return await launches.launch(self._engine, line, self._log)

    async def _prepare_cache(self, line: LaunchLine) -> None:
        """Have a folder for the cache of an engine that is launched with ``line``."""
        try:
            await self.cache.prepare(self.line.fingerprint, line.command, self.line.files)
        except OSError as error:
            why = f"the folder for its cache cannot be made: {error} (keep_cache = 0 does without it)"
            raise self._errors.did_not_start(why) from None
