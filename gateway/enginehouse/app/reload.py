"""Reads the configuration again: for POST /api/reload, for SIGHUP, or when its file changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import NamedTuple

import msgspec

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.app.callers import Callers
from enginehouse.app.config_change import ConfigChange, CurrentConfig
from enginehouse.app.config_diff import ConfigDiff
from enginehouse.app.needs import unmet_needs
from enginehouse.app.path_plugins import PathPlugins
from enginehouse.app.plan import LONGEST_S, warn_of_missing
from enginehouse.app.services.service_runner import ServiceRuns, Services, prepare_services
from enginehouse.config.load_config import LoadedConfig
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError, EnginehouseError, ShuttingDown
from enginehouse.domain.usage import AuditEntry

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 2.0
_QUIET_S = 0.05
"""A file that did not change for so long is complete."""
_EMPTY_S = 0.5
"""A file that was empty for so long is meant to be empty."""
_MOST_LOOKS = 40
"""At a file that is being written: one every ``_QUIET_S``, until a reload gives up."""
_MOST_TRIES = 4
"""To work out one change; the last one on the event loop."""


class Stamp(NamedTuple):
    """The status of a file, which changes with its contents: time of change in ns, size, inode and device."""

    changed_ns: int
    size: int
    inode: int
    device: int


def stamp(file: Path) -> Stamp | None:
    """The status of ``file``, or of the target of a link; ``None`` if it is missing or out of reach."""
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)


class ChangeWatch:
    """Compares what ``look`` finds from call to call. ``None`` is no change: a file may be about to be replaced.

    To skip a file that is still being written, a change is reported only when two calls in a row find the same.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._known = self._seen = look()

    def changed(self) -> bool:
        """Whether something has changed since this last returned ``True``. Call it periodically."""
        before, self._seen = self._seen, self._look()
        if self._seen is None or self._seen != before or self._seen == self._known:
            return False
        self._known = self._seen
        return True


class ConfigSource(NamedTuple):
    """``read`` reads the configuration again; ``file`` is the file it comes from, if any.

    ``watch`` notices changes where there is no file.
    """

    read: Callable[[], LoadedConfig]
    file: Path | None
    watch: ChangeWatch | None = None


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/api/reload``. ``applied`` is false after a dry run.

    ``taken_over_by``: the process id of the gateway that has taken over, if that was wanted.
    """

    applied: bool
    file: str | None
    changes: ConfigDiff
    warnings: tuple[str, ...]
    taken_over_by: int | None = None


class Reloader:
    """Reloads the configuration. Reloads run one after the other, so the one requested last stays in force.

    ``note`` gets those that no operator's request asked for.
    """

    def __init__(
        self,
        current: CurrentConfig,
        services: Services,
        source: ConfigSource,
        note: Callable[[AuditEntry], None] = lambda _: None,
    ) -> None:
        self._current = current
        self._services = services
        self._note = note
        self._source = source
        self._lock = asyncio.Lock()
        self._tasks = BackgroundTasks()
        self._is_open = False

    def open(self) -> None:
        """Allow reloads from now on, and watch the file while ``server.watch`` says so."""
        self._is_open = True
        if self._source.watch is not None:
            self._tasks.start(self._keep_watching(self._source.watch, "its models"))
        elif self._source.file is not None:
            self._tasks.start(self._keep_watching(ChangeWatch(self._stamp), str(self._source.file)))
        elif self._current.config.server.watch:
            _log.warning("There is no configuration file to watch")

    def close(self) -> None:
        self._is_open = False
        self._tasks.cancel()

    async def reload(self, dry_run: bool = False) -> Reloaded:
        """Read the configuration and put it in force; a dry run only returns the changes.

        Raises ``ConfigError`` or ``PluginError`` for an unusable configuration, ``ShuttingDown`` in a gateway that does
        not run. After an error, nothing has changed.
        """
        async with self._lock:
            loaded = await self._read()
            with loaded.naming_file():
                change, services = await self._prepare(loaded.config)
            warnings = *loaded.warnings, *change.plan.warnings
            if not dry_run:
                self.carry_out(change, services)
                _log_changes(change.diff, warnings)
            await warn_of_missing(change.context)
            return Reloaded(
                applied=not dry_run,
                file=str(loaded.file) if loaded.file else None,
                changes=change.diff,
                warnings=warnings,
            )

    async def _prepare(self, new: Config) -> tuple[ConfigChange, ServiceRuns]:
        """What ``new`` needs, to carry out at once. What takes long does not run on the event loop.

        Raises ``ConfigError`` or ``PluginError``, and ``ShuttingDown`` for a gateway that ends meanwhile.
        """
        for tries in reversed(range(_MOST_TRIES)):
            version = self._current.version
            change, services = self.begin(new)
            if tries:
                await self._work_out(change)
            else:  # services change the configuration faster than a thread can work a change out
                change.work_out()
            if not self._is_open:
                raise ShuttingDown("The gateway is not running")
            self._current.path.relay.check_open()
            if version == self._current.version:  # else services have changed what this is a change of
                break
        change.complete()
        return change, services

    async def _work_out(self, change: ConfigChange) -> None:
        """Work ``change`` out in a thread, which is left alone if it takes too long."""
        try:
            await run_within(LONGEST_S, run_slowly(change.work_out))
        except TimeoutError:
            who = f"the driver '{change.plan.asked}' hangs: it" if change.plan.asked else "the drivers hang: this"
            problem = f"{who} has not returned for {LONGEST_S:g} s"
            if not change.plan.asked:
                raise ConfigError(problem) from None
            raise self._current.path.registry.get("driver", change.plan.asked).error(problem) from None

    def begin(self, new: Config) -> tuple[ConfigChange, ServiceRuns]:
        """Begin a change to ``new``, to work out and to complete, with the services for it. Nothing changes yet."""
        current = self._current
        joined = current.joined.joined_to(current.sizes.sized(new))
        change = ConfigChange(current, joined, unmet_needs(new, current.path.registry))
        made = change.plan
        # those in force stay
        made.findings.collect(lambda: Callers(made.config, made.registry, made.outside.clock))
        PathPlugins(made.config, made.registry, made.outside, made.findings)
        return change, prepare_services(made)

    def carry_out(self, change: ConfigChange, services: ServiceRuns) -> None:
        """Put what is complete in force."""
        self._current.put_in_force(change)
        self._services.reconfigure(services)  # last: what they withdraw leaves by a change of its own

    async def _read(self) -> LoadedConfig:
        """Read the configuration, once nobody writes its file. Raises ``ConfigError``.

        Editors empty a file before they write it, and no text at all, or the first half of a file, may be a valid
        configuration: one without keys.
        """
        seen, since = await run_slowly(self._stamp), time()
        for _ in range(_MOST_LOOKS):
            if seen is None or time() - min(since, seen.changed_ns / 1e9) >= (_QUIET_S if seen.size else _EMPTY_S):
                loaded = await run_slowly(self._source.read)
            else:
                loaded = None
                await asyncio.sleep(_QUIET_S)
            before, seen = seen, await run_slowly(self._stamp)
            if seen != before:
                since = time()
            elif loaded is not None:
                return loaded
        raise ConfigError("is still being written", file=str(self._source.file), remedy="reload it when it is whole")

    def _stamp(self) -> Stamp | None:
        return stamp(self._source.file) if self._source.file is not None else None

    def start_reload(self, why: str) -> asyncio.Task[None]:
        """Reload in the background. The result is logged."""
        return self._tasks.start(self._reload_for(why))

    async def _reload_for(self, why: str) -> None:
        _log.info("Reloading the configuration: %s", why)
        status, outcome = 200, "done"
        try:
            await self.reload()
        except EnginehouseError as error:
            status, outcome = 400, "refused"
            _log.error("The configuration cannot be used, and nothing has changed: %s", error)
        except Exception:
            status, outcome = 500, "failed"
            _log.exception("The configuration could not be reloaded")
        self._note(AuditEntry(time(), "", "", f"reload: {why}", status, outcome))

    async def _keep_watching(self, watch: ChangeWatch, what: str) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._current.config.server.watch and await run_slowly(watch.changed):
                await self._reload_for(f"{what} changed")


def _log_changes(diff: ConfigDiff, warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)
    _log.info("The configuration was reloaded: %s", "; ".join(diff.lines()) or "nothing changed")
    if diff.needs_restart:
        _log.warning("These changes need a restart of the gateway: %s", ", ".join(diff.needs_restart))
