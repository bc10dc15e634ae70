"""The configuration read anew, whoever asks for that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from enginehouse.app.changeover import Changeover
from enginehouse.app.plan import Plan
from enginehouse.app.watch import FileWatch
from enginehouse.config.load import Loaded
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError, ConfigErrors, EnginehouseError

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0


class Source(NamedTuple):
    """Where the configuration comes from: ``read`` reads it anew, ``file`` is what it was read from, if anything."""

    read: Callable[[], Loaded]
    file: Path | None


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``applied``: whether the changes are in force, or were only to be told."""

    applied: bool
    file: str | None
    changes: Plan
    warnings: tuple[str, ...]


class House(Protocol):
    """What is to have another configuration."""

    @property
    def config(self) -> Config:
        """What is in force."""

    def prepare(self, config: Config) -> Changeover:
        """Make what is needed to go on with ``config``; nothing changes. Raises an ``EnginehouseError``."""

    def carry_out(self, changeover: Changeover) -> None:
        """Go on with what was prepared last."""


class Reloads:
    """Reads the configuration anew: one after the other, so that the last one that was asked for stays in force."""

    def __init__(self, house: House, source: Source) -> None:
        self._house = house
        self._source = source
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Watch the file from now on, while ``server.watch`` says so."""
        if self._source.file is not None:
            self._spawn(self._keep_watching(FileWatch(self._source.file)))
        elif self._house.config.server.watch:
            _log.warning("There is no configuration file to watch")

    def close(self) -> None:
        """Begin no other reload."""
        for task in self._tasks:
            task.cancel()

    async def reload(self, dry_run: bool = False) -> Reloaded:
        """Read the configuration and put it in force, or only say what would change.

        Whatever cannot be used is raised, and then nothing has changed: ``ConfigError``, ``PluginError``; and
        ``ShuttingDown`` in a gateway that is being stopped.
        """
        async with self._turn:
            loaded = await asyncio.to_thread(self._source.read)
            file = str(loaded.file) if loaded.file else ""
            try:
                changeover = self._house.prepare(loaded.config)
            except ConfigError as error:
                raise _located(error, file) from None
            if not dry_run:
                self._house.carry_out(changeover)
                _tell(changeover.plan, loaded.warnings)
            return Reloaded(applied=not dry_run, file=file or None, changes=changeover.plan, warnings=loaded.warnings)

    def ask(self, why: str) -> None:
        """Begin to reload; what comes of it is in the log."""
        self._spawn(self._reload_for(why))

    async def _reload_for(self, why: str) -> None:
        _log.info("The configuration is loaded again: %s", why)
        try:
            await self.reload()
        except EnginehouseError as error:
            _log.error("The configuration cannot be used, and everything is as it was: %s", error)
        except Exception:
            _log.exception("The configuration could not be loaded again")

    async def _keep_watching(self, watch: FileWatch) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._house.config.server.watch and watch.changed():
                await self._reload_for(f"{self._source.file} was changed")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _located(error: ConfigError, file: str) -> ConfigError:
    """``error`` with the file that it is about, where whoever raised it could not know that."""
    if isinstance(error, ConfigErrors) or error.file or not error.key:
        return error
    return error.__class__(error.problem, file=file, key=error.key, remedy=error.remedy)


def _tell(plan: Plan, warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _log.warning("%s", warning)
    _log.info("The configuration was loaded again: %s", "; ".join(plan.lines()) or "nothing changed")
    if plan.needs_restart:
        _log.warning("These stay as they are until the gateway is started again: %s", ", ".join(plan.needs_restart))
