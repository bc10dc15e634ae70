"""The folders for the prefix caches of launched engines, and what keeps the caches there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import quote

from enginehouse.interfaces.cache_keepers import CacheKeeper, LaunchedBackend

MakeKeeper = Callable[[LaunchedBackend], "CacheKeeper | None"]
"""Makes what keeps the caches of a backend; ``None`` if that fails, which is logged."""


def make_folder(folder: Path, *, empty: bool) -> None:
    """Have a folder for an engine that is launched: an ``empty`` one if nothing keeps track of what it holds.

    To be called in a thread. Raises ``OSError``.
    """
    if empty and folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


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
