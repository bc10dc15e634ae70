"""A server that runs elsewhere and loads models itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import LoadFailed
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient, LoadedModel, ServedModel
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Launcher, LaunchLine

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_PAUSE_GROWTH = 1.5
_LISTED_WITHIN_S = 5.0
"""In so much time, a server lists a model that it says it has loaded."""


class RemoteServer:
    """Loads and unloads the models of one backend, and asks it every ``interval`` seconds which ones are loaded.

    ``connect`` makes a client with a time limit. ``models``: what the server can load, with an estimate of the memory
    where it gives one. ``proxied``: what it serves without a load. ``on_found`` gets a model that is loaded although no
    load of the gateway's own holds it.
    """

    def __init__(
        self,
        name: str,
        url: str,
        driver: DriverSupport,
        connect: Callable[[float], EngineClient],
        interval: float,
        on_found: Callable[[str, EngineProcess], None],
    ) -> None:
        self.name = name
        self.url = url
        assert driver.loading is not None
        self.driver = driver
        self.loading = driver.loading
        self.models: dict[str, int | None] = {}
        self.proxied: frozenset[str] = frozenset()
        self.loaded: Mapping[str, LoadedModel] = {}
        self._connect = connect
        self._interval = interval
        self._on_found = on_found
        self._holders: dict[str, RemoteLoad] = {}
        self._round = 0
        self._problem = ""
        self._tasks = BackgroundTasks()

    def discover(self, served: Sequence[ServedModel]) -> bool:
        """Take the models that the server lists; whether those that it can load have changed."""
        self.proxied = frozenset(model.name for model in served if model.proxied)
        before, self.models = self.models, {model.name: model.memory for model in served if not model.proxied}
        return before != self.models

    def begin(self) -> None:
        """Begin to ask regularly."""
        self._tasks.start(self._keep_asking())

    def close(self) -> None:
        """Stop asking. The server keeps its loaded models."""
        self._tasks.cancel()

    async def load(self, model: str, timeout: float) -> RemoteLoad:
        """Load a model and wait until it is loaded. Raises what the driver raises."""
        await self.loading.load(self._connect(timeout), model)
        try:
            within = _LISTED_WITHIN_S if self.loading.answers_when_loaded else None
            await asyncio.wait_for(self._until(lambda: model in self.loaded), within)
        except asyncio.TimeoutError:
            raise LoadFailed(
                f"{self.name} says that it has loaded '{model}', but does not list it among its loaded models"
            ) from None
        return self._hold(model)

    async def unload(self, model: str, timeout: float) -> None:
        """Unload a model and wait until it is gone."""
        await self.loading.unload(self._connect(timeout), model)
        await self._until(lambda: model not in self.loaded)

    def note_unloaded(self, model: str) -> None:
        """Note that the server has refused a request because ``model`` is not loaded."""
        self.loaded = {name: loaded for name, loaded in self.loaded.items() if name != model}
        if (held := self._holders.get(model)) is not None:
            _log.info("%s is no longer loaded on %s: somebody else has unloaded it", model, self.name)
            held.ended()

    async def refresh(self) -> None:
        """Ask which models are loaded. Ends the loads of others, and reports those that are new."""
        self._round += 1
        now = self._round
        listed = await self.loading.loaded(self._connect(max(self._interval, _LONGEST_PAUSE_S)))
        names = {self.loading.full_name(model): model for model in self.models}
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

    def _hold(self, model: str) -> RemoteLoad:
        load = RemoteLoad(self, model)
        self.hold(load)
        return load

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Ask at growing intervals until ``holds``. An answer that is late or wrong counts as no change."""
        pause = _FIRST_PAUSE_S
        while True:
            await self._try_to_refresh()
            if holds():
                return
            await asyncio.sleep(pause)
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    async def _keep_asking(self) -> None:
        while True:
            await self._try_to_refresh()
            await asyncio.sleep(self._interval)

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

    async def exited(self) -> int | None:
        """Wait until the server no longer has the model loaded."""
        if not self._end.done():
            self._server.hold(self)
        await asyncio.shield(self._end)
        return None

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


class RemoteLauncher(Launcher):
    """Launches one model of a server by loading it."""

    def __init__(self, server: RemoteServer, model: str, timeout: float) -> None:
        self._server = server
        self._model = model
        self._timeout = timeout

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        output.write(f"Loading {self._model} on {self._server.url}\n".encode())
        try:
            return await self._server.load(self._model, self._timeout)
        except LoadFailed as error:
            output.write(f"{error}\n".encode())
            raise

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        return None
