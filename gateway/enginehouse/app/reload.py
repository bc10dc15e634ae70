"""Reads the configuration again: for ``POST /api/reload``, for SIGHUP, or when its file changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import NamedTuple

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.config_change import CurrentConfig
from enginehouse.app.config_diff import ConfigDiff
from enginehouse.app.watch import FileWatch, FolderWatch, Stamp, stamp
from enginehouse.config.load_config import LoadedConfig
from enginehouse.domain.errors import ConfigError, EnginehouseError, ShuttingDown
from enginehouse.domain.usage import AuditEntry

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0
_QUIET_S = 0.05
"""Nobody writes a file that has not changed for so long."""
_MOST_LOOKS = 40
"""At a file that is being written: one every ``_QUIET_S``, until a reload gives up."""


class ConfigSource(NamedTuple):
    """``read`` reads the configuration again; ``file`` is the file it comes from, if any.

    ``watch`` notices changes where there is no file.
    """

    read: Callable[[], LoadedConfig]
    file: Path | None
    watch: FolderWatch | None = None


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
        self, current: CurrentConfig, source: ConfigSource, note: Callable[[AuditEntry], None] = lambda _: None
    ) -> None:
        self._current = current
        self._note = note
        self._source = source
        self._last_read = self._stamp()
        self._lock = asyncio.Lock()
        self._tasks = BackgroundTasks()
        self._is_open = False

    def open(self) -> None:
        """Allow reloads from now on, and watch the file while ``server.watch`` says so."""
        self._is_open = True
        if self._source.watch is not None:
            self._tasks.start(self._keep_watching(self._source.watch, "its models"))
        elif self._source.file is not None:
            self._tasks.start(self._keep_watching(FileWatch(self._source.file), str(self._source.file)))
        elif self._current.config.server.watch:
            _log.warning("There is no configuration file to watch")

    def close(self) -> None:
        """Allow no more reloads."""
        self._is_open = False
        self._tasks.cancel()

    async def reload(self, dry_run: bool = False) -> Reloaded:
        """Read the configuration and put it in force; a dry run only returns the changes.

        Raises ``ConfigError`` or ``PluginError`` for an unusable configuration, ``ShuttingDown`` in a gateway that does
        not run. After an error, nothing has changed.
        """
        async with self._lock:
            loaded = await self._read()
            file = str(loaded.file) if loaded.file else ""
            if not self._is_open:
                raise ShuttingDown("The gateway does not run")
            try:
                change = self._current.prepare(loaded.config)
            except ConfigError as error:
                raise error.located(file) from None
            if not dry_run:
                self._current.carry_out(change)
                _log_changes(change.diff, loaded.warnings)
            return Reloaded(applied=not dry_run, file=file or None, changes=change.diff, warnings=loaded.warnings)

    async def _read(self) -> LoadedConfig:
        """Read the configuration, once nobody writes its file. Raises ``ConfigError``.

        An editor may empty a file before it writes it, and the disk may be full then. No text at all, or the first half
        of a file, may be a valid configuration, but one without keys. So a file that was emptied in place is not read.
        """
        before = None
        for _ in range(_MOST_LOOKS):
            seen = self._stamp()
            if seen is None or (_rests(seen, before) and not self._was_emptied(seen)):
                self._last_read = seen
                loaded = await asyncio.to_thread(self._source.read)
                if self._stamp() == seen:
                    return loaded
            before = seen
            await asyncio.sleep(_QUIET_S)
        problem, remedy = "was emptied, or is still being written", "write it, if only with a comment, and reload again"
        raise ConfigError(problem, file=str(self._source.file), remedy=remedy)

    def _stamp(self) -> Stamp | None:
        return stamp(self._source.file) if self._source.file is not None else None

    def _was_emptied(self, seen: Stamp) -> bool:
        last = self._last_read
        return not seen.size and last is not None and last.size > 0 and last.inode == seen.inode

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

    async def _keep_watching(self, watch: FileWatch | FolderWatch, what: str) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._current.config.server.watch and watch.changed():
                await self._reload_for(f"{what} changed")


def _rests(seen: Stamp, before: Stamp | None) -> bool:
    return seen == before or time() - seen.changed_ns / 1e9 >= _QUIET_S


def _log_changes(diff: ConfigDiff, warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)
    _log.info("The configuration was reloaded: %s", "; ".join(diff.lines()) or "nothing changed")
    if diff.needs_restart:
        _log.warning("These changes need a restart of the gateway: %s", ", ".join(diff.needs_restart))
