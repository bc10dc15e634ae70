"""Notifies observers of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.observers import Observer
from enginehouse.telemetry.plugin_failures import log_plugin_failure

Callback = Callable[..., None]
Callbacks = Sequence[Callback]
"""The observers' methods for one event; empty if no observer overrides it."""


class Observers:
    """All observers. They may be added and removed while the gateway runs."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = list(observers)
        self._by_event: dict[str, list[Callback]] = {}

    def callbacks(self, event: str) -> Callbacks:
        """The methods for ``event`` that observers override: always the same list, kept up to date."""
        if event not in self._by_event:
            found = (_override(observer, event) for observer in self._observers)
            self._by_event[event] = [method for method in found if method is not None]
        return self._by_event[event]

    def add(self, observer: Observer) -> None:
        """Notify ``observer`` too, from now on."""
        self._observers.append(observer)
        for event, callbacks in self._by_event.items():
            if (method := _override(observer, event)) is not None:
                callbacks.append(method)

    def remove(self, observer: Observer) -> None:
        """Stop notifying ``observer``."""
        self._observers.remove(observer)
        for event, callbacks in self._by_event.items():
            if (method := _override(observer, event)) is not None:
                callbacks.remove(method)


def notify(callbacks: Callbacks, *facts: object) -> None:
    """Call all of them with ``facts``. An exception, even ``SystemExit``, is logged and stops no other call."""
    for callback in callbacks:
        _notify_one(callback, facts)


def _override(observer: Observer, event: str) -> Callback | None:
    own = getattr(type(observer), event)
    return getattr(observer, event) if own is not getattr(Observer, event) else None


def _notify_one(callback: Callback, facts: tuple[object, ...]) -> None:
    try:
        callback(*facts)
    except BaseException as error:
        owner = type(getattr(callback, "__self__", callback))
        observer = PluginId("observer", f"{owner.__module__}.{owner.__qualname__}")
        log_plugin_failure(observer, f"failed in {getattr(callback, '__name__', callback)}", error)
