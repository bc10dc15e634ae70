"""Telling observers what they want to hear of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from enginehouse.interfaces.observers import Observer

_log = logging.getLogger(__name__)

Listeners = Sequence[Callable[..., None]]
"""Who wants to hear of one event."""


def listeners(observers: Sequence[Observer], event: str) -> Listeners:
    """The methods ``event`` of those who have one of their own."""
    return [
        getattr(observer, event)
        for observer in observers
        if getattr(type(observer), event) is not getattr(Observer, event)
    ]


def tell(told: Listeners, *facts: object) -> None:
    """Tell everybody; who fails is logged and harms nobody else."""
    for listener in told:
        _tell_one(listener, facts)


def _tell_one(listener: Callable[..., None], facts: tuple[object, ...]) -> None:
    try:
        listener(*facts)
    except Exception:
        _log.exception("an observer failed and was not told: %r", facts)
