"""The middleware that has interceptors decide about requests and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from enginehouse import Middleware
from enginehouse.middleware import MiddlewareFacts, OpenExchange, Opening, OpenRequest, ResponseWriter
from enginehouse_interception.filtering_writer import FilteringWriter
from enginehouse_interception.intercepted_exchange import InterceptedExchange
from enginehouse_interception.interceptors import Interceptors
from enginehouse_interception.sharing_writer import SharingWriter


class Interception(Middleware):
    """Puts the writers of filters, and of requests that join others, between each request and its client."""

    def use(self, gateway: MiddlewareFacts) -> None:
        self._gateway = gateway
        self.interceptors = Interceptors(gateway)

    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        interceptors, memory, sharing = self.interceptors, self._gateway.memory, None
        if interceptors.may_join:
            writer = sharing = SharingWriter(writer, memory)
        filtering = FilteringWriter(writer, memory, opening.path, interceptors.listening, self._gateway.now)
        # an interceptor may change the body
        request = cast("OpenRequest", inner(filtering, opening._replace(decoded=None)))
        filtering.exchange = request
        return InterceptedExchange(interceptors, request, opening, filtering, sharing)

    def check_time(self, now: float) -> None:
        self.interceptors.tell_silence(now)
