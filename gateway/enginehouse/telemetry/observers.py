"""Notifies observers of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import EnginehouseError, PluginFailed
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.exporters import Exporter
from enginehouse.interfaces.observers import Observer
from enginehouse.interfaces.services import Configured
from enginehouse.telemetry.plugin_failures import await_plugin, finished, log_plugin_failure
from enginehouse.telemetry.plugin_times import SampledCall

T = TypeVar("T")

_STOP_S: Final = 5.0

Callbacks = Sequence[SampledCall]
"""The observers' methods for one event; empty if no observer overrides it."""


class Observers:
    """All observers. They may be added and removed while the gateway runs; ``on_change`` is called after that.

    ``plugins``: whose each of ``observers`` is, in the same order. The others are called by the names of their classes.
    """

    def __init__(self, observers: Iterable[Observer] = (), plugins: Iterable[PluginId] = ()) -> None:
        self._observers = list(observers)
        self._plugins = dict(zip(map(id, self._observers), plugins, strict=False))
        self._installed = tuple(self._observers)
        self._by_event: dict[str, list[SampledCall]] = {}
        self._wanted: dict[str, list[SampledCall]] = {}
        self._tasks = BackgroundTasks()
        self.on_change: Callable[[], None] | None = None

    @property
    def sampled(self) -> Iterator[SampledCall]:
        """The calls whose times can be sampled."""
        return (callback for callbacks in (*self._by_event.values(), *self._wanted.values()) for callback in callbacks)

    def callbacks(self, event: str) -> Callbacks:
        """The methods for ``event`` that observers override: always the same list, kept up to date."""
        if event not in self._by_event:
            found = ((observer, _override(observer, event)) for observer in self._observers)
            self._by_event[event] = [self._sampled(each, method) for each, method in found if method is not None]
        return self._by_event[event]

    def wanted(self, method: str, configured: Configured) -> Callbacks:
        """What a ``method`` of plugins' observers wants called while ``configured`` is in force: ``at_end`` is one."""
        asked = self._ask(method, lambda observer: getattr(observer, method)(configured))
        self._wanted[method] = [self._sampled(observer, wanted) for observer, wanted in asked if wanted is not None]
        return self._wanted[method]

    def status(self) -> dict[str, Any]:
        """What observers of plugins show in ``/api/status``."""
        asked = self._ask("status", lambda observer: for_json(observer.status()))
        return {key: value for _, shown in asked for key, value in shown.items()}

    def _ask(self, method: str, ask: Callable[[Observer], T]) -> Sequence[tuple[Observer, T]]:
        """What each installed observer answers to its ``method``. One that raises is logged and left out."""
        answers = []
        for each in self._installed:
            try:
                answers.append((each, ask(each)))
            except BaseException as error:  # noqa: PERF203 - one that fails must not stop the others
                log_plugin_failure(self._plugin_of(each), f"failed in {method}", error)
        return answers

    def added(self, event: str) -> Sequence[Callable[..., None]]:
        """The methods for ``event`` of observers that were added: of the gateway's own, not those of plugins."""
        # "is": a plugin's observer may have an __eq__ of its own
        own = (each for each in self._observers if not any(each is installed for installed in self._installed))
        return [method for each in own if (method := _override(each, event)) is not None]

    def start(self) -> None:
        """Start those of plugins, on the running event loop. Exporters are started by their owner."""
        for each in self._lives("start"):
            self._tasks.start(_carry_out(each))

    async def stop(self) -> None:
        """Stop those of plugins, and wait until they have, for 5 seconds at most."""
        self._tasks.cancel()
        await asyncio.gather(*(_carry_out(each, _STOP_S) for each in self._lives("stop")))

    def _lives(self, method: str) -> Sequence[SampledCall]:
        """The calls of ``start`` or ``stop`` of installed observers that have one."""
        own = ((each, _override(each, method)) for each in self._installed if not isinstance(each, Exporter))
        return [self._sampled(each, found) for each, found in own if found is not None]

    def add(self, observer: Observer) -> None:
        """Notify ``observer`` too, from now on."""
        self._observers.append(observer)
        for event, callbacks in self._by_event.items():
            if (method := _override(observer, event)) is not None:
                callbacks.append(self._sampled(observer, method))
        self._tell_change()

    def remove(self, observer: Observer) -> None:
        """Stop notifying ``observer``."""
        self._observers.remove(observer)
        for event, callbacks in self._by_event.items():
            method = _override(observer, event)
            callbacks[:] = [callback for callback in callbacks if callback.method != method]
        self._tell_change()

    def _sampled(self, observer: Observer, method: Callable[..., None]) -> SampledCall:
        return SampledCall(self._plugin_of(observer), method)

    def _plugin_of(self, observer: Observer) -> PluginId:
        owner = type(observer)
        return self._plugins.get(id(observer)) or PluginId("observer", f"{owner.__module__}.{owner.__qualname__}")

    def _tell_change(self) -> None:
        if self.on_change is not None:
            self.on_change()


def for_json(status: Mapping[str, Any]) -> dict[str, Any]:
    """What a plugin shows of itself. Raises an exception if JSON cannot have it."""
    shown = dict(status)
    msgspec.json.encode(shown)
    return shown


def notify(callbacks: Callbacks, *facts: object) -> None:
    """Call all of them with ``facts``. An exception, even ``SystemExit``, is logged and stops no other call."""
    for callback in callbacks:
        try:
            callback.call(*facts)
        except BaseException as error:  # noqa: PERF203 - one that fails must not stop the others
            name = getattr(callback.method, "__name__", "a method")
            log_plugin_failure(callback.plugin, f"failed in {name}", error)


async def _carry_out(call: SampledCall, limit: float | None = None) -> None:
    """Await a call, for ``limit`` seconds at most. An exception is logged."""
    try:
        await run_within(limit, await_plugin(call.plugin, finished, call.method))
    except TimeoutError:
        log_plugin_failure(call.plugin, f"has not stopped within {limit:g} s")
    except EnginehouseError as error:
        if not isinstance(error, PluginFailed):  # which is logged
            log_plugin_failure(call.plugin, "failed", error)


def _override(observer: Observer, event: str) -> Callable[..., Any] | None:
    own = getattr(type(observer), event)
    return getattr(observer, event) if own is not getattr(Observer, event) else None
