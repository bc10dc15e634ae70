"""The downloads of models whose engines are to start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Event

from enginehouse.aio.slow_work import run_slowly
from enginehouse.config.pull import PullSettings
from enginehouse.domain.errors import LoadCancelled
from enginehouse.engines.pulled_models import PulledModels
from enginehouse.interfaces.model_sources import ModelSource


class Downloads:
    """Downloads models in threads. Engines of the same model share a download."""

    def __init__(self, make_sources: Callable[[], Sequence[ModelSource]]) -> None:
        self._make_sources = make_sources
        self._running: dict[str, _Download] = {}

    async def fetch(self, name: str, settings: PullSettings, tell: Callable[[str], None]) -> None:
        """Download the model ``name`` unless it is there; ``tell`` hears how far that is. Raises ``PullFailed``.

        The download ends when the last caller is cancelled. What is there then is kept.
        """
        models = PulledModels(settings, self._make_sources())
        if await run_slowly(models.find, name) is not None:
            return
        download = self._running.get(name)
        if download is None:
            download = self._running[name] = _Download(models, name)
        download.listeners.append(tell)
        try:
            await asyncio.shield(download.task)
        finally:
            download.listeners.remove(tell)
            if not download.listeners:
                download.cancelled.set()
                self._running.pop(name, None)
            del download  # a failure refers to this frame, and its task to the failure


class _Download:
    """One download. ``task`` ends with it."""

    def __init__(self, models: PulledModels, name: str) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.cancelled = Event()
        self._loop = asyncio.get_running_loop()
        self._told = ""
        self.task = asyncio.ensure_future(run_slowly(models.pull, name, self._note))
        self.task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _note(self, done: int, total: int | None) -> None:
        """Take the progress that the thread reports. Raises ``LoadCancelled`` there when no request waits any more."""
        if self.cancelled.is_set():
            raise LoadCancelled("Nobody waits for the download any more")
        from rich.filesize import decimal  # a gateway that downloads nothing does without

        text = f"{done * 100 // total} % of {decimal(total)}" if total else decimal(done)
        if text != self._told:
            self._told = text
            self._loop.call_soon_threadsafe(self._tell, text)

    def _tell(self, text: str) -> None:
        for listener in self.listeners:
            listener(text)
