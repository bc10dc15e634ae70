"""A WebSocket between a client and the engine of the model that it named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from enginehouse.aio.tasks import wait_for_first
from enginehouse.domain.errors import LoadFailed, Overloaded, RequestError, UpstreamError, UpstreamTimeout
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.engine_memory import EngineShare
from enginehouse.relay.heads import AnswerHead, origin_lines, read_lines
from enginehouse.relay.jobs.engine_job import EngineJob
from enginehouse.relay.request import CLIENT_LEFT, LiveRequests, Request
from enginehouse.relay.response_writer import WebSocketPeer

if TYPE_CHECKING:  # the library takes 15 ms of each start, and most gateways have no WebSocket
    from enginehouse.relay.web_sockets.engine_socket import HandshakeAnswer, WebSocketPipe


class WebSocket(Request):
    """Opens a WebSocket to the engine, then the client's, and passes messages until one side ends.

    Until then it counts as load of the backend and occupies its queue slot. ``largest``: the size limit in bytes of a
    message from the engine. ``ended`` is set at the end.
    """

    endless: ClassVar[bool] = True

    def __init__(self, job: EngineJob, largest: int, live_requests: LiveRequests) -> None:
        super().__init__(job, live_requests)
        self._call = job.call
        self._largest = largest
        self._subprotocols: Sequence[str] = ()
        self._answer: HandshakeAnswer | None = None
        self._opened: asyncio.Future[None] = _pending()
        self._pipe: WebSocketPipe | None = None
        self._stop: asyncio.Future[RequestError] = _pending()
        self.ended = asyncio.Event()
        live_requests.begin(self)

    @property
    def why_not_movable(self) -> str | None:
        return "it is a WebSocket"

    def fail(self, error: RequestError) -> None:
        if not self._stop.done():
            self._stop.set_result(error)

    def cut_off(self, why: str) -> None:
        self.fail(LoadFailed(f"The request was cut off: {why}"))

    def check_time(self, now: float) -> None:
        if self._pipe is not None and now >= self._pipe.deadline and self.route is not None:
            self.fail(UpstreamTimeout(f"Backend '{self.route.chosen.backend}' takes no more messages"))

    async def run(self, client: WebSocketPeer, enter: Callable[[], AdmittedCaller | None]) -> None:
        """Open the WebSocket and serve it until it ends; ``enter`` identifies the client or raises ``RequestError``.

        Raises ``RequestError`` if the client still waits for an answer to its handshake.
        """
        status, outcome = CLIENT_LEFT, "client_left"
        cause: RequestError | None = None
        try:
            self.job.admit(b"", enter())
            self._subprotocols = client.subprotocols
            self._dispatch.start()
            self._live_requests.routed += 1
            answer = await self._unless_disconnected(client)
            if answer is not None:
                status, outcome = await self._pass_on(client, answer)
                cause = self._stop.result() if self._stop.done() else None
        except RequestError as error:
            status, outcome, cause = error.status, error.code, error
            job = self.job
            job.context.refused(job.request_id, job.key, job.requirements, error)
            raise
        finally:
            self._end(status, outcome, cause)
            # An error refers to this frame and so to this object, which must not refer to the error.
            del cause
            self._opened, self._stop = _pending(), _pending()

    async def closed(self) -> None:
        await self.ended.wait()

    # --- from the dispatch

    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        attempt.sent_at = attempt.upstream.clock.now()
        attempt.work(self._open, self._answered)

    # --- opening

    async def _open(self, attempt: Attempt) -> None:
        from enginehouse.relay.web_sockets.engine_socket import open_web_socket

        job = self.job
        try:
            self._answer = await open_web_socket(
                attempt.upstream,
                self._call.target_at(attempt.route.chosen),
                job.engine_headers,
                job.request_id,
                subprotocols=self._subprotocols,
                largest=self._largest,
            )
        except UpstreamError:
            if attempt.slot is not None:
                attempt.slot.in_doubt = True
            raise

    def _answered(self, error: RequestError | None) -> None:
        if error is not None:
            self._dispatch.lost(error)
            return
        attempt, answer = self._dispatch.current(), self._answer
        assert answer is not None
        attempt.begins_answer(attempt.upstream.clock.now())
        attempt.head = AnswerHead(answer.status, b"", None, False, False)
        self.job.context.fleet.succeeded(attempt.route.chosen.backend)
        if not self._opened.done():
            self._opened.set_result(None)

    async def _unless_disconnected(self, client: WebSocketPeer) -> HandshakeAnswer | None:
        """An engine's answer; ``None`` if the client leaves first. Raises ``RequestError`` if no engine answers."""
        leaving = asyncio.ensure_future(client.receive())
        await wait_for_first((self._opened, leaving), self._stop)
        if self._stop.done():
            raise self._stop.result()
        if not leaving.cancelled():
            return None
        return self._answer

    # --- open

    async def _pass_on(self, client: WebSocketPeer, answer: HandshakeAnswer) -> tuple[int, str]:
        """Give the client the engine's answer and carry messages until the end; the final status and the outcome."""
        from enginehouse.relay.web_sockets.engine_socket import WebSocketPipe

        attempt, socket = self._dispatch.current(), answer.socket
        route = attempt.route
        origin = origin_lines(route.chosen.backend, route.model, route.reason.value)
        headers = [*answer.headers, *read_lines(origin), (b"x-request-id", self.request_id)]
        if socket is None:
            share = EngineShare(self.job.context.engine_memory, "answer", len(answer.body))
            if why := share.take(len(answer.body)):
                raise Overloaded(f"The engine refused the WebSocket, and its answer was dropped: {why}")
            try:
                await client.refuse(answer.status, headers, answer.body)
            finally:
                share.give_back()
            return answer.status, "served"
        await client.accept(socket.subprotocol, headers)
        self._pipe = WebSocketPipe(client, socket, attempt.upstream.timeouts.stall, attempt.upstream.clock.now)
        await self._pipe.carry(self._stop)
        if self._stop.done():
            return self._stop.result().status, self._stop.result().code
        return answer.status, "served"

    def _end(self, status: int, outcome: str, error: RequestError | None) -> None:
        if self._answer is not None and self._answer.socket is not None:
            self._answer.socket.transport.abort()
        self.end(status, outcome, error)
        self.ended.set()


def _pending() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
