"""Makes an interceptor of each guard."""

from __future__ import annotations

from typing import Any

from enginehouse.runtime import PluginId
from enginehouse_guards.active_guard import ActiveGuard
from enginehouse_guards.answers import GuardedAnswer, GuardedStream, GuardedStreamOrAnswer
from enginehouse_kit.interceptors import (
    AnswerFilter,
    Change,
    InterceptedRequest,
    Interceptor,
    InterceptorAdapter,
    Refuse,
)


class GuardAdapter(InterceptorAdapter):
    """Makes interceptors of guards."""

    kind = "guard"
    table = "guards"

    def adapt(self, plugin: PluginId, made: Any, *, passes: bool) -> Interceptor:
        guard = ActiveGuard(plugin, made, passes=passes)
        return AskedGuard(guard) if guard.has("before") else WatchingGuard(guard)


class WatchingGuard(Interceptor):
    """A guard that sees no requests. Answers that it does not see either have no filter."""

    def __init__(self, guard: ActiveGuard) -> None:
        self._guard = guard
        self._filter: type[GuardedAnswer] | type[GuardedStream] | None = None
        if guard.has("on_text"):
            self._filter = GuardedStreamOrAnswer if guard.has("after") else GuardedStream
        elif guard.has("after"):
            self._filter = GuardedAnswer

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        return None if self._filter is None else self._filter(self._guard, request)


class AskedGuard(WatchingGuard):
    """A guard that sees requests."""

    async def before(self, request: InterceptedRequest) -> Refuse | Change | None:
        return await self._guard.before(request)
