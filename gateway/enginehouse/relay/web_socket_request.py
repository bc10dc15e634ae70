"""A client's request for a WebSocket to the engine of the model that it named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from enginehouse.aio.tasks import wait_for_first
from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import LoadFailed, RequestError, UpstreamError, UpstreamTimeout
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request import Headers
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.attempts.attempt import NEVER, Attempt
from enginehouse.relay.heads import AnswerHead, origin_lines, read_lines
from enginehouse.relay.jobs.engine_job import EngineJob
from enginehouse.relay.request import CLIENT_LEFT, LiveRequests, Request
from enginehouse.relay.web_socket_server import AskedEngine, WebSocketCarrier
from enginehouse.telemetry.plugin_failures import await_plugin, wrong_result

Enter = Callable[[Headers], AdmittedCaller | None]
"""Identifies a client by its headers, or raises ``RequestError``."""


class WebSocketRequest(Request):
    """Has an engine asked for the WebSocket first, and another one if that fails; then a ``plugin`` carries messages.

    It is live from ``serve`` on. Until the end it counts as load of the backend and occupies its queue slot. ``ended``
    is set at the end.
    """

    endless: ClassVar[bool] = True

    def __init__(
        self, job: EngineJob, enter: Enter, plugin: PluginId, live_requests: LiveRequests, address: str
    ) -> None:
        super().__init__(job, live_requests)
        self.address = address
        self._call = job.call
        self._enter = enter
        self._plugin = plugin
        self._carrier: WebSocketCarrier | None = None
        self._answer = 0
        """The status of the engine's answer."""
        self._deadline = NEVER
        self._opened: asyncio.Future[None] = _pending()
        self.stopped: asyncio.Future[RequestError] = _pending()
        self.ended = asyncio.Event()

    @property
    def why_not_movable(self) -> str | None:
        return "it is a WebSocket"

    def fail(self, error: RequestError) -> None:
        if not self.stopped.done():
            self.stopped.set_result(error)

    def cut_off(self, why: str) -> None:
        self.fail(LoadFailed(f"The request was cut off: {why}"))

    def check_time(self, now: float) -> None:
        if now >= self._deadline and self.route is not None:
            self.fail(UpstreamTimeout(f"Backend '{self.route.chosen.backend}' takes no more messages"))

    async def closed(self) -> None:
        await self.ended.wait()

    # --- from the plugin

    async def serve(self, headers: Headers, carrier: WebSocketCarrier) -> None:
        """Open the WebSocket and have ``carrier`` serve it until it ends; ``headers`` have the client's credential.

        Raises ``RequestError`` if the client still waits for an answer to its handshake.
        """
        self._live_requests.begin(self)
        status, outcome = CLIENT_LEFT, "client_left"
        cause: RequestError | None = None
        try:
            caller = self._enter(headers)
            self._carrier = carrier
            self.begin(b"", caller)
            if await self._unless_left(carrier):
                await carrier.carry(self._headers())
                status, outcome = self._answer, "served"
                if self.stopped.done():
                    cause = self.stopped.result()
                    status, outcome = cause.status, cause.code
        except RequestError as error:
            status, outcome, cause = error.status, error.code, error
            job = self.job
            job.context.refused(job.request_id, job.key, job.requirements, error)
            raise
        finally:
            self._end(status, outcome, cause)
            # An error refers to this frame and so to this object, which must not refer to the error.
            del cause
            self._opened, self.stopped = _pending(), _pending()

    def await_engine(self, *, waits: bool) -> None:
        """Limit the time in which the engine takes a message, from now on; or no more, if it ``waits`` no longer."""
        attempt = self._dispatch.current()
        stall = attempt.limits.stall
        self._deadline = attempt.upstream.clock.now() + stall if waits and stall else NEVER

    # --- from the dispatch

    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        attempt.hand_out()
        attempt.work(self._open, self._answered)

    async def _open(self, attempt: Attempt) -> None:
        carrier, times, name = self._carrier, attempt.limits, attempt.upstream.name
        assert carrier is not None
        limit = times.connect + times.first_byte if times.connect and times.first_byte else None
        try:
            opening = await_plugin(self._plugin, carrier.open, self._asked(attempt))
            status: object = await run_within(limit, opening)
        except UpstreamError:
            if attempt.slot is not None:
                attempt.slot.in_doubt = True
            raise
        except TimeoutError:
            raise UpstreamTimeout(f"Backend '{name}' did not open a WebSocket in time") from None
        if not isinstance(status, int):
            raise wrong_result(self._plugin, "returned no status from open")
        self._answer = status

    def _answered(self, error: RequestError | None) -> None:
        if error is not None:
            self._dispatch.lost(error)
            return
        attempt = self._dispatch.current()
        attempt.head = AnswerHead(self._answer, b"", None, False, False)
        attempt.begins_answer(attempt.upstream.clock.now())
        self.job.context.fleet.succeeded(attempt.route.chosen.backend)
        if not self._opened.done():
            self._opened.set_result(None)

    # --- inside

    def _asked(self, attempt: Attempt) -> AskedEngine:
        """The engine of ``attempt``. Raises ``UpstreamError`` if it does not run."""
        upstream, job = attempt.upstream, self.job
        origin = upstream.pool.origin

        def unreachable(error: OSError) -> RequestError:
            failed = UpstreamError(f"Backend '{upstream.name}' could not be reached: {error}")
            return upstream.outside.shortage(error) or failed

        if not origin.host:
            raise UpstreamError(f"Backend '{upstream.name}' could not be reached: its engine does not run")
        target = self._call.target_at(attempt.route.chosen)
        return AskedEngine(
            upstream.name,
            f"{'wss' if origin.tls else 'ws'}://{origin.authority}{origin.prefix}{target}",
            upstream.handshake(job.engine_headers, job.request_id, job.caller_lines(upstream)),
            upstream.pool.tls,
            unreachable,
        )

    async def _unless_left(self, carrier: WebSocketCarrier) -> bool:
        """Wait for an engine's answer; whether it came before the client left. Raises ``RequestError`` if none does."""
        leaving = asyncio.ensure_future(carrier.left())
        await wait_for_first((self._opened, leaving), self.stopped)
        if self.stopped.done():
            raise self.stopped.result()
        return leaving.cancelled()

    def _headers(self) -> Headers:
        """What the client gets besides the headers of the engine's answer."""
        route = self._dispatch.current().route
        origin = origin_lines(route.chosen.backend, route.model, route.reason.value)
        return [*read_lines(origin), (b"x-request-id", self.request_id)]

    def _end(self, status: int, outcome: str, error: RequestError | None) -> None:
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.abort()
        self.end(status, outcome, error)
        self.ended.set()


def _pending() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
