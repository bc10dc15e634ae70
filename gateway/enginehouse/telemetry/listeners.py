"""Telling observers what they want to hear of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from enginehouse.interfaces.observers import Observer

_log = logging.getLogger(__name__)

Listener = Callable[..., None]
Listeners = Sequence[Listener]
"""Who wants to hear of one event: empty if nobody does."""


class Observers:
    """Everybody who wants to hear of something; they may come and go.

    The house's own observers may have two methods more than others: ``queue_changed()``, told when who waits at a host,
    or in which order, may have changed, and ``replicas_changed()``, told when some have come or gone.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = list(observers)
        self._by_event: dict[str, list[Listener]] = {}

    def listeners(self, event: str) -> Listeners:
        """The methods ``event`` of those who have one of their own: the same list for as long as the gateway lives."""
        if event not in self._by_event:
            found = (_own_method(observer, event) for observer in self._observers)
            self._by_event[event] = [method for method in found if method is not None]
        return self._by_event[event]

    def add(self, observer: Observer) -> None:
        """Tell ``observer`` too, from now on."""
        self._observers.append(observer)
        for event, told in self._by_event.items():
            if (method := _own_method(observer, event)) is not None:
                told.append(method)

    def remove(self, observer: Observer) -> None:
        """Tell ``observer`` nothing more."""
        self._observers.remove(observer)
        for event, told in self._by_event.items():
            if (method := _own_method(observer, event)) is not None:
                told.remove(method)


def tell(told: Listeners, *facts: object) -> None:
    """Tell everybody; who fails is logged and harms nobody else."""
    for listener in told:
        _tell_one(listener, facts)


def _own_method(observer: Observer, event: str) -> Listener | None:
    own = getattr(type(observer), event, None)
    listens = own is not None and own is not getattr(Observer, event, None)
    return getattr(observer, event) if listens else None


def _tell_one(listener: Listener, facts: tuple[object, ...]) -> None:
    try:
        listener(*facts)
    except Exception:
        _log.exception("an observer failed and was not told: %r", facts)
