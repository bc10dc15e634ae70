"""Turns failures of plugins into ``PluginFailed`` and logs them with their tracebacks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.domain.errors import EnginehouseError, PluginFailed, RequestError
from enginehouse.domain.plugin_id import PluginId

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0
_OF_BYTES: Final = frozenset({"take", "as_stream", "body"})
"""Methods of guarded objects that return bytes, whose client would otherwise get nothing at all."""


class RateLimit:
    """Passes one of a key's occurrences per ``every`` seconds on the clock ``now``, and counts the others."""

    def __init__(self, every: float, now: Callable[[], float] = SYSTEM_CLOCK.now) -> None:
        self._every = every
        self._now = now
        self._last: dict[object, float] = {}
        self._skipped: dict[object, int] = {}

    def passes(self, key: object) -> int | None:
        """How many occurrences were skipped since the last one that passed; ``None`` to skip this one too."""
        now = self._now()
        if key in self._last and now - self._last[key] < self._every:
            self._skipped[key] = self._skipped.get(key, 0) + 1
            return None
        self._last[key] = now
        return self._skipped.pop(key, 0)


_limit = RateLimit(_LOG_EVERY_S)


def plugin_failed(plugin: PluginId, error: BaseException) -> PluginFailed:
    """The error to raise from ``error``, which is logged. Clients see only the exception's class."""
    log_plugin_failure(plugin, f"failed with {type(error).__name__}", error)
    failure = PluginFailed(f"The {plugin} failed with {type(error).__name__}", details=plugin.details)
    failure.__cause__ = error  # compiled code does not note it
    return failure


def wrong_result(plugin: PluginId, problem: str) -> PluginFailed:
    """The error to raise for a result that breaks the rules of its interface. ``problem`` describes it."""
    log_plugin_failure(plugin, problem)
    return PluginFailed(f"The {plugin} {problem}", details=plugin.details)


def log_plugin_failure(plugin: PluginId, problem: str, error: BaseException | None = None) -> None:
    """Log a failure with its traceback, each plugin at most once in 10 seconds."""
    skipped = _limit.passes(plugin)
    if skipped is not None:
        more = f" ({skipped} more failures since the last message)" if skipped else ""
        _log.error("The %s %s%s", plugin, problem, more, exc_info=error)


@contextmanager
def plugin_errors(plugin: PluginId) -> Iterator[None]:
    """Raise ``PluginFailed`` from an exception of the plugin. A ``RequestError`` is meant for the client and passes.

    ``SystemExit`` and ``KeyboardInterrupt`` count as failures: they would end the gateway. A context manager costs too
    much for code that runs on every request; such code spells this out.
    """
    try:
        yield
    except RequestError:
        raise
    except BaseException as error:
        raise plugin_failed(plugin, error) from error


async def await_plugin(plugin: PluginId, method: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Await an asynchronous method of the plugin. Raises ``PluginFailed`` from its exceptions.

    Errors of Enginehouse and the cancellation of the calling task pass. asyncio would end the event loop with
    ``SystemExit`` and ``KeyboardInterrupt``, and take a ``CancelledError`` of the plugin for a cancellation.
    """
    try:
        return await method(*arguments)
    except BaseException as error:
        if passes(error):
            raise
        raise plugin_failed(plugin, error) from error


async def finished(call: Callable[[], Awaitable[None] | None]) -> None:
    """Call what may be a coroutine, and await it then."""
    if inspect.isawaitable(made := call()):
        await made


def passes(error: BaseException) -> bool:
    """Whether ``await_plugin`` passes an ``error`` of the plugin on as it is."""
    if isinstance(error, EnginehouseError):
        return _has_text(error)
    return isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and _is_cancelled())


def _has_text(error: Exception) -> bool:
    """Whether ``str(error)`` works; the error may be of a class of the plugin's own."""
    try:
        return isinstance(str(error), str)
    except BaseException:
        return False


def _is_cancelled() -> bool:
    """Whether the running task is cancelled. Python 3.10 does not tell, so then it counts as cancelled."""
    task = asyncio.current_task()
    return task is None or not hasattr(task, "cancelling") or task.cancelling() > 0


class GuardedObject:
    """Does as ``own``, an object of a ``plugin``.

    A method that fails raises ``PluginFailed``, and so does one that must return bytes and does not.
    ``otherwise``: what methods return instead that must not fail, as the request or the gateway has to go on.
    """

    def __init__(self, plugin: PluginId, own: object, otherwise: Mapping[str, object]) -> None:
        vars(self).update(plugin=plugin, own=own, otherwise=otherwise)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.own, name)
        return partial(self._call, name, found) if callable(found) else found

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.own, name, value)

    def _call(self, name: str, method: Callable[..., object], *facts: object) -> object:
        if name not in self.otherwise:
            with plugin_errors(self.plugin):
                found = method(*facts)
            if name in _OF_BYTES and not isinstance(found, bytes):
                raise wrong_result(self.plugin, f"returned no bytes from {name}")
            return found
        otherwise = self.otherwise[name]
        try:
            found = method(*facts)
        except BaseException as error:
            log_plugin_failure(self.plugin, f"failed in {name}", error)
            return otherwise
        return found if otherwise is None or isinstance(found, type(otherwise)) else otherwise
