"""Sends workers the configuration and the state of backends, whenever they change."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterable
from typing import Final

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.config_change import CurrentConfig
from enginehouse.domain.replica import replica_name
from enginehouse.fleet.workers import BackendView, BoardColumns, LoadBoard
from enginehouse.processes.workers.channel import Send
from enginehouse.processes.workers.messages import BackendPlace, Configuration
from enginehouse.processes.workers.worker import Worker

_LOOK_EVERY_S: Final = 0.2
"""Figures of engines come in every second or so; what a decision must know at once is told by the fleet."""


class Publisher:
    """Keeps what all workers were told. ``current``: the configuration in force. ``send`` sends them all a message."""

    def __init__(self, current: CurrentConfig, board: LoadBoard, send: Send) -> None:
        self._context = current.path.relay.context
        self._current = current
        self._send = send
        self._columns = BoardColumns(board)
        self._board = board
        self._configuration: Configuration
        self._managed: frozenset[str] = frozenset()
        self._sent: dict[str, tuple[BackendView, BackendPlace]] = {}
        self._changed: set[str] = set()
        self._soon: asyncio.Handle | None = None
        self._tasks = BackgroundTasks()
        self.configure()

    def open(self) -> None:
        self._context.fleet.on_facts = self.note
        self._look()
        self._tasks.every(_LOOK_EVERY_S, self._look)

    def close(self) -> None:
        self._context.fleet.on_facts = None
        self._tasks.cancel()
        if self._soon is not None:
            self._soon.cancel()

    def configure(self) -> None:
        """Send the configuration in force, and with it the state of all backends."""
        config = self._current.config
        self._managed = frozenset(backend for name, model in config.models.items() for backend in model.backends(name))
        columns = dict(self._columns.assign(self._context.upstreams))
        folder = self._current.path.callers.folder
        self._configuration = Configuration(self._current.version, pickle.dumps(config), columns, folder)
        for name in self._context.upstreams:
            column = columns.get(name)
            cells = self._board.cells(column) if column is not None else None
            self._context.fleet.load(name).share(cells, self._board.workers)
        self._sent = {}
        self._send(Worker.configure, self._configuration)
        self._publish(self._context.upstreams)

    def greet(self, send: Send) -> None:
        memories = self._context.router.strategies.memories()
        send(Worker.configure, msgspec.structs.replace(self._configuration, memories=memories))
        send(Worker.follow, [*self._sent.values()])

    def flush(self) -> None:
        """Send what has changed, now."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._changed:
            self._publish(self._changed)

    def correct(self, names: Iterable[str]) -> None:
        """Tell the state of these backends soon, even if it has not changed: a worker has judged them by itself."""
        for name in names:
            self._sent.pop(name, None)
            self.note(name)

    def note(self, name: str) -> None:
        """Look at a backend soon, and tell what has changed."""
        self._changed.add(name)
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self.flush)

    def refresh_load(self) -> None:
        """Read how many requests all workers have at each backend."""
        for name in self._context.upstreams:
            self._context.fleet.load(name).refresh()

    def _look(self) -> None:
        self.refresh_load()
        self._publish(self._context.upstreams)

    def _publish(self, names: Iterable[str]) -> None:
        told = [found for name in [*names] if (found := self._keep(name)) is not None]
        self._changed.clear()
        if told:
            self._send(Worker.follow, told)

    def _keep(self, name: str) -> tuple[BackendView, BackendPlace] | None:
        """What workers must be told of a backend; ``None`` if they know it."""
        view = self._context.fleet.view(name)
        if view is None:
            self._sent.pop(name, None)
            return None
        before, self._sent[name] = self._sent.get(name), (view, self._place(view))
        return None if self._sent[name] == before else self._sent[name]

    def _place(self, view: BackendView) -> BackendPlace:
        name = view.name
        upstream, queue = self._context.upstreams.get(name), self._context.queues.get(name)
        url = upstream.pool.origin.url if upstream is not None and name in self._managed else None
        if queue is None:
            return BackendPlace(name, url)
        replicas = [replica_name(model, name) for model in view.states]
        unloaded = [replica for replica in replicas if queue.is_unloaded(replica)]
        return BackendPlace(name, url, "own" if queue.launches else "line", unloaded)
