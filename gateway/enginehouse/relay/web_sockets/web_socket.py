"""A WebSocket between a client and the engine of the model that it named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final

from websockets.asyncio.client import ClientConnection

from enginehouse.aio.tasks import wait_for_first
from enginehouse.domain.errors import Cancelled, RequestError, UpstreamTimeout
from enginehouse.domain.ticket import Phase
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.relay.door import Caller, WebSocketDoor
from enginehouse.relay.heads.headers import origin_lines, read_lines
from enginehouse.relay.jobs.engine_job import EngineJob
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.upstream.web_socket import headers_for_client
from enginehouse.relay.web_sockets.web_socket_attempt import WebSocketAttempt
from enginehouse.relay.web_sockets.web_socket_dispatch import WebSocketDispatch
from enginehouse.relay.web_sockets.web_socket_pipe import WebSocketPipe
from enginehouse.telemetry.record import AttemptRecord, Ending

_SWITCHING_PROTOCOLS: Final = 101
_CLIENT_CLOSED_REQUEST: Final = 499  # nginx's status for its log; the client sees none


class WebSocket(LiveRequest):
    """Opens a WebSocket to the engine, then the client's, and passes messages until one side ends.

    Until then it counts as load of the backend and occupies its queue slot. ``largest``: the size limit in bytes of a
    message from the engine. ``ended`` is set at the end.
    """

    __slots__ = ("_dispatch", "_engine", "_message", "_pipe", "_stop", "ended")

    endless: ClassVar[bool] = True

    def __init__(self, job: EngineJob, largest: int) -> None:
        self._job = job
        self.moves = 0
        self._dispatch = WebSocketDispatch(job, largest)
        self._engine: ClientConnection | None = None
        self._pipe: WebSocketPipe | None = None
        self._stop: asyncio.Future[RequestError] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._message = ""
        self.ended = asyncio.Event()

    @property
    def attempt(self) -> WebSocketAttempt | None:
        return self._dispatch.attempt

    @property
    def attempts(self) -> Sequence[AttemptRecord]:
        return self._dispatch.attempts

    @property
    def stays(self) -> str | None:
        return "it is a WebSocket"

    @property
    def _live_phase(self) -> Phase:
        return self._dispatch.phase

    def cancel(self, error: RequestError | None = None) -> None:
        if not self._stop.done():
            self._stop.set_result(error or Cancelled("The request was cancelled by an operator"))

    def check_time(self, now: float) -> None:
        if self._pipe is not None and now >= self._pipe.deadline and self.route is not None:
            self.cancel(UpstreamTimeout(f"Backend '{self.route.chosen.backend}' takes no more messages"))

    async def run(self, door: WebSocketDoor, enter: Callable[[], Caller | None]) -> None:
        """Open the WebSocket and serve it until it ends; ``enter`` identifies the client or raises ``RequestError``.

        Raises ``RequestError`` if the client still waits for an answer to its handshake.
        """
        status, outcome = _CLIENT_CLOSED_REQUEST, "client_left"
        try:
            self._job.admit(b"", enter())
            answer = await self._unless_disconnected(door, self._dispatch.open(door.subprotocols))
            if answer is not None:
                status, outcome = await self._answer(door, answer)
        except RequestError as error:
            status, outcome, self._message = error.status, error.code, error.message
            self._job.context.refused(self.request_id, self.requirements, error)
            raise
        finally:
            self._end(status, outcome)

    # --- opening

    async def _unless_disconnected(
        self, door: WebSocketDoor, work: Coroutine[Any, Any, ClientConnection | EngineResponse]
    ) -> ClientConnection | EngineResponse | None:
        """The result of ``work``; ``None`` if the client disconnects first."""
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(door.receive())
        await wait_for_first((working, leaving), self._stop)
        if self._stop.done():
            raise self._stop.result()
        return working.result() if leaving.cancelled() else None

    # --- open

    async def _answer(self, door: WebSocketDoor, answer: ClientConnection | EngineResponse) -> tuple[int, str]:
        """Give the client the engine's answer and carry messages until the end; the final status and the outcome."""
        attempt = self._dispatch.attempt
        assert attempt is not None
        route = attempt.route
        origin = origin_lines(route.chosen.backend, route.model, route.reason.value)
        ours = [*read_lines(origin), (b"x-request-id", self.request_id)]
        if isinstance(answer, EngineResponse):
            await door.refuse(answer.status, [*answer.headers, *ours], answer.body)
            return answer.status, "served"
        assert answer.response is not None
        self._engine = answer
        await door.accept(answer.subprotocol, [*headers_for_client(answer.response), *ours])
        self._pipe = WebSocketPipe(door, answer, attempt.upstream.timeouts.stall, attempt.upstream.clock.now)
        await self._pipe.carry(self._stop)
        if self._stop.done():
            return self._stop.result().status, self._stop.result().code
        return _SWITCHING_PROTOCOLS, "served"

    def _end(self, status: int, outcome: str) -> None:
        self._status = status
        if self._engine is not None:
            self._engine.transport.abort()
        if self._job.caller is not None:
            self._job.caller.release()
        self._dispatch.end(outcome)
        self._job.context.ended(self, self._job, Ending(status, outcome, self._message))
        self.ended.set()
