"""A request to an inference endpoint."""

from __future__ import annotations

from typing import ClassVar

from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.relay.continuation.restrictions import PATHS
from enginehouse.relay.continuation.stream_history import StreamHistory
from enginehouse.relay.door import Caller
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.one_model import check_one_model
from enginehouse.routing.body.read import read_request
from enginehouse.routing.body.replace_model import replace_model


class InferenceJob(Job):
    """A ``POST`` that is routed by its body."""

    __slots__ = ()

    method = "POST"
    repeatable = True
    raw = False
    retry_statuses: ClassVar = frozenset({429, 500, 502, 503, 504})

    def _needs(self, caller: Caller | None) -> Requirements:
        request = self.decoded or read_request(self.path, self.headers, self.body)
        if isinstance(user := request.body.user, str):
            self.user = user
        if caller is not None and caller.scoped:
            check_one_model(self.body)
        return self.context.router.requirements(request)

    def route(self, failed: tuple[str, ...]) -> Route:
        assert self.requirements is not None
        traced = self.trace is not None
        return self.context.router.route(self.requirements, self.context.fleet.snapshot, failed, detailed=traced)

    def body_for(self, route: Route) -> bytes:
        """The body with the model's filters applied, and with the name that the engine has for the model.

        A stream that another engine can continue also tells its tokens.
        """
        body, filters, model = self.body, self.context.filters, route.chosen.model
        if filters.change_any:
            body = filters.apply(body, route.requested, model)
        if model != route.requested:
            body = replace_model(body, model)
        assert self.requirements is not None
        return self._continuable(route, body) if self.requirements.stream else body

    def _continuable(self, route: Route, body: bytes) -> bytes:
        """``body`` with the fields by which another engine can continue the stream, if there is another one."""
        context, chosen = self.context, route.chosen
        self.history = None
        if self.path not in PATHS or context.continuation.of(chosen.model) == "error":
            return body
        if len(context.fleet.snapshot.candidates(chosen.model)) < 2:
            queue = context.queues.get(chosen.backend)
            if queue is None or not queue.launches:
                return body
        driver = context.continuation.drivers.get(chosen.backend)
        if driver is None:  # a reload has just removed it
            return body
        asked = driver.continuation.continuable(self.path, body)
        self.history = StreamHistory(self.path, body, driver.continuation.streams, added=asked is not body)
        return asked

    def request(self, upstream: Upstream, body: bytes) -> bytes:
        if self.caller is not None:
            body = self.ranked(upstream, body)
        return upstream.post(self.path, self.headers, self.request_id, body, self.trace)

    def judge(self, route: Route, status: int, first_byte: float, suspects: tuple[str, ...]) -> tuple[str, ...]:
        fleet, chosen = self.context.fleet, route.chosen
        if status == 429:  # neither a sign of health nor of a fault
            return suspects
        if status < 500:
            fleet.succeeded(chosen.backend)
            chosen.load.answered(first_byte * 1000)
            for suspect in suspects:
                fleet.failed(suspect, "answered 500 to what another backend could serve")
        elif status == 500:  # the request itself may be the cause
            return (*suspects, chosen.backend)
        else:
            fleet.failed(chosen.backend, f"answered {status}")
        return suspects
