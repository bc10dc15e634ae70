"""The prefix caches of launched engines while these do not run: their folders, and what keeps caches there."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.timeouts import run_within
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.interfaces.cache_keepers import CacheKeeper, LaunchedBackend
from enginehouse.interfaces.drivers import EngineClient

_log = logging.getLogger(__name__)
_RESTORE_S: Final = 30.0
_GRACE_S: Final = 10.0
"""What a keeper may take to read and write files of its own: a launch waits for that."""

MakeKeeper = Callable[[LaunchedBackend], "CacheKeeper | None"]
"""Makes what keeps the caches of a backend; ``None`` if that fails, which is logged."""


class CacheFolders:
    """One folder for each backend, in that of the gateway's ``state``. ``make_keeper``: a service's, once it runs."""

    def __init__(self, state: Path) -> None:
        self.make_keeper: MakeKeeper = lambda backend: None
        self._folder = state / "kept_caches"

    def folder_of(self, backend: str) -> Path:
        """The folder of ``backend``."""
        return self._folder / quote(backend, safe="")

    def remove_others(self, backends: Collection[str]) -> None:
        """Remove the folders of all backends but these. To be called in a thread."""
        known = {self.folder_of(each) for each in backends}
        for found in self._folder.iterdir() if self._folder.is_dir() else ():
            if found not in known:
                shutil.rmtree(found, ignore_errors=True)


class EngineCache:
    """The cache of the engine of ``managed``, in its ``folder``. A failure of its keeper is logged."""

    def __init__(self, folders: CacheFolders, managed: ManagedReplica) -> None:
        self.folder = folders.folder_of(managed.engine)
        self._folders = folders
        self._backend = LaunchedBackend(managed.engine, managed.model_name, self.folder)
        self._kept: CacheKeeper | None = None

    @property
    def _keeper(self) -> CacheKeeper | None:
        if self._kept is None:
            self._kept = self._folders.make_keeper(self._backend)
        return self._kept

    @property
    def estimated(self) -> int:
        """The tokens that the next engine gets back, as routing estimates the tokens of prompts."""
        return 0 if (keeper := self._keeper) is None else keeper.estimated

    async def prepare(self, launch: str, command: Sequence[str], files: Sequence[str]) -> None:
        """Have a folder for an engine that is launched, as ``CacheKeeper.prepare``. Raises ``OSError``."""
        keeper = self._keeper
        await run_slowly(_make_folder, self.folder, empty=keeper is None)
        if keeper is not None:
            await self._logged(_GRACE_S, keeper.prepare(launch, command, files))

    async def save(self, managed: ManagedReplica, engine: EngineClient) -> None:
        """Save the cache of an engine that stops after this."""
        wait, most = managed.model.keep_cache_wait, managed.model.keep_cache
        if (keeper := self._keeper) is not None and managed.driver.cache is not None:
            await self._logged(wait + _GRACE_S, keeper.save(managed.driver.cache, engine, wait, most))

    async def restore(self, managed: ManagedReplica, engine: EngineClient) -> None:
        """Give an engine that is ready the cache that was saved."""
        if (keeper := self._keeper) is not None and managed.driver.cache is not None:
            await self._logged(_RESTORE_S + _GRACE_S, keeper.restore(managed.driver.cache, engine))

    async def _logged(self, within: float, work: Coroutine[Any, Any, None]) -> None:
        try:
            await run_within(within, work)
        except Exception as error:
            _log.warning("The cache of %s is not kept: %s", self._backend.name, error or type(error).__name__)


def _make_folder(folder: Path, *, empty: bool) -> None:
    """Have a folder: an ``empty`` one if nothing keeps track of what it holds. Raises ``OSError``."""
    if empty and folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
