"""A server that runs elsewhere and loads models itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from enginehouse import RequestError
from enginehouse.backends import LoadingBackend, ModelServer
from enginehouse.drivers import EventClient, LoadedModel, LoadNews
from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineOutput, EngineProcess, Exit
from enginehouse.runtime import BackgroundTasks, run_within

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_PAUSE_GROWTH = 1.5
_LONGEST_RETRY_S = 60.0
_LISTED_WITHIN_S = 5.0
"""In so much time, a server lists a model that it says it has loaded."""


class RemoteServer(ModelServer):
    """Loads and unloads the models of one backend, and knows which ones are loaded.

    It asks every ``interval`` seconds, and whenever the server reports a change by itself.
    """

    def __init__(self, backend: LoadingBackend) -> None:
        self.name = backend.name
        self.url = backend.url
        self.models: frozenset[str] = frozenset()
        self.loaded: Mapping[str, LoadedModel] = {}
        self._loading = backend.loading
        self._connect = backend.connect
        self._interval = backend.interval
        self._on_found = backend.on_found
        self._holders: dict[str, RemoteLoad] = {}
        self._outputs: dict[str, EngineOutput] = {}
        self._changed = asyncio.Event()
        self._round = self._answered = 0
        self._problem = ""
        self._tasks = BackgroundTasks()

    def discover(self, models: Collection[str]) -> None:
        self.models = frozenset(models)

    def begin(self) -> None:
        """Begin to ask regularly, and to follow the server's own reports."""
        self._tasks.start(self._keep_asking())
        self._tasks.start(self._keep_following())

    def close(self) -> None:
        self._tasks.cancel()
        self._on_found = lambda model, process: None

    async def load(self, model: str, timeout: float, output: EngineOutput) -> RemoteLoad:
        self._outputs[model] = output
        output.write(f"Loading {model} on {self.url}\n".encode())
        try:
            engine = self._connect(timeout)
            await self._loading.load(engine, model)
            await self._wait_until_listed(engine, model)
        except LoadFailed as error:
            output.write(f"{error}\n".encode())
            raise
        finally:
            if self._outputs.get(model) is output:  # it may be that of a load which was begun after this one
                del self._outputs[model]
        load = RemoteLoad(self, model)
        self.hold(load)
        return load

    async def unload(self, model: str, timeout: float) -> None:
        """Unload a model and wait until it is gone."""
        await self._loading.unload(self._connect(timeout), model)
        await self._until(partial(self._is_gone, model))

    def note_unloaded(self, model: str) -> None:
        self.loaded = {name: loaded for name, loaded in self.loaded.items() if name != model}
        if (held := self._holders.get(model)) is not None:
            _log.info("%s is no longer loaded on %s: somebody else has unloaded it", model, self.name)
            held.ended()

    async def refresh(self) -> None:
        """Ask which models are loaded. Ends the loads of others, and reports those that are new."""
        self._round += 1
        now = self._round
        listed = await self._loading.loaded(self._connect(max(self._interval, _LONGEST_PAUSE_S)))
        if now < self._answered:  # a later question was answered first
            return
        self._answered = now
        names = {self._loading.full_name(model): model for model in self.models}
        self.loaded = {names.get(model.name, model.name): model for model in listed}
        for model, held in list(self._holders.items()):
            if model not in self.loaded and held.since < now:
                held.ended()
        for model in self.loaded:
            if model in self.models and model not in self._holders:
                self._on_found(model, RemoteLoad(self, model))

    def hold(self, load: RemoteLoad) -> None:
        """Tell ``load`` when the server has unloaded its model."""
        load.since = self._round
        self._holders[load.model] = load

    def remove(self, load: RemoteLoad) -> None:
        """Drop a load that has ended."""
        if self._holders.get(load.model) is load:
            del self._holders[load.model]

    async def _wait_until_listed(self, engine: EventClient, model: str) -> None:
        within = _LISTED_WITHIN_S if self._loading.answers_when_loaded else None
        try:
            await run_within(within, self._until(partial(self._is_loaded, engine, model)))
        except TimeoutError:
            raise LoadFailed(
                f"{self.name} says that it has loaded '{model}', but does not list it among its loaded models"
            ) from None

    async def _is_loaded(self, engine: EventClient, model: str) -> bool:
        """Whether the list has ``model``. Raises ``LoadFailed`` if the server has given the load up."""
        if model in self.loaded:
            return True
        if (problem := await self._loading.load_problem(engine, model)) is not None:
            raise problem
        return False

    async def _is_gone(self, model: str) -> bool:
        return model not in self.loaded

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Ask which models are loaded until ``holds``: at growing intervals, and when the server reports a change.

        An answer that is late or wrong counts as no change.
        """
        pause = _FIRST_PAUSE_S
        while True:
            changed = self._changed
            await self._try_to_refresh()
            if await holds():
                return
            await _wait_until_set(changed, pause)
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    async def _keep_asking(self) -> None:
        while True:
            changed = self._changed
            await self._try_to_refresh()
            await _wait_until_set(changed, self._interval)

    async def _keep_following(self) -> None:
        """Follow the server's reports as long as it has any. Pauses grow while it cannot be reached."""
        pause = self._interval
        while True:
            heard = self._changed
            try:
                await self._loading.follow_loads(self._connect(max(self._interval, _LONGEST_PAUSE_S)), self._note_news)
                return
            except RequestError as error:
                _log.debug("Backend %s reports no loads by itself: %s", self.name, error)
            pause = self._interval if heard.is_set() else min(2 * pause, _LONGEST_RETRY_S)
            await asyncio.sleep(pause)

    def _note_news(self, news: LoadNews) -> None:
        if (output := self._outputs.get(news.model)) is not None:
            output.write(f"{news.text}\n".encode())
        if news.settled:
            self._changed.set()  # whoever waits has this one, whoever begins to wait from now on has the next
            self._changed = asyncio.Event()

    async def _try_to_refresh(self) -> None:
        try:
            await self.refresh()
        except Exception as error:
            problem = str(error) or type(error).__name__
            if problem != self._problem:
                _log.warning("Backend %s does not say which models it has loaded: %s", self.name, problem)
            self._problem = problem
        else:
            self._problem = ""


async def _wait_until_set(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await run_within(seconds, event.wait())


class RemoteLoad(EngineProcess):
    """A loaded model of a server, which takes the place of an engine: it runs until the model is unloaded."""

    ends_at_will = True

    def __init__(self, server: RemoteServer, model: str) -> None:
        self.address = server.url
        self.handle: Mapping[str, Any] = {}
        self.model = model
        self.since = 0
        self._server = server
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def exited(self) -> Exit:
        """Wait until the server no longer has the model loaded."""
        if not self._end.done():
            self._server.hold(self)
        await asyncio.shield(self._end)
        return Exit()

    async def memory(self) -> int | None:
        """The bytes that the server reports for the model."""
        loaded = self._server.loaded.get(self.model)
        return loaded.memory if loaded is not None else None

    async def stop(self, timeout: float) -> None:
        """Unload the model. A server that does not do so keeps it, and it is found again."""
        if self._end.done():
            return
        try:
            await run_within(timeout, self._server.unload(self.model, timeout))
        except Exception as error:
            why = str(error) or type(error).__name__
            _log.warning("%s may still have %s loaded: %s", self._server.name, self.model, why)
        self.ended()

    def ended(self) -> None:
        """Note that the model is no longer loaded."""
        self._server.remove(self)
        if not self._end.done():
            self._end.set_result(None)
