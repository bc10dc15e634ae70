"""One try to open a WebSocket at one backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection

from enginehouse.domain.errors import RequestError, UpstreamError
from enginehouse.domain.request_record import AttemptRecord
from enginehouse.domain.route import Route
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.relay.jobs.engine_job import EngineJob
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.retrying.retries import FailedAttempt, Outcome
from enginehouse.relay.upstream.web_socket import open_web_socket


class WebSocketAttempt:
    """Holds a share of the backend's load and, where the backend has a queue, a queue slot until ``release``.

    ``status``: of the engine's answer to the handshake; 0 until then. ``upstream``: the backend's, which a reload may
    remove from the configuration at any time.
    """

    def __init__(self, job: EngineJob, route: Route) -> None:
        self._job = job
        self._granted_at = self._sent_at = self._opened_at = 0.0
        self.route = route
        self.upstream = job.context.upstreams[route.chosen.backend]
        self._began = self.upstream.clock.now()
        self.status = 0
        self.slot: QueueSlot | None = None
        route.chosen.load.begin()

    async def open(
        self, subprotocols: Sequence[str], largest: int, waiting_since: float | None
    ) -> ClientConnection | EngineResponse:
        """Wait for the slot, then have the engine open a WebSocket; or its answer to the handshake.

        Raises ``RequestError`` if the queue rejects the request or the engine does not answer.
        """
        job, chosen = self._job, self.route.chosen
        queue = job.context.queues.get(chosen.backend)
        if queue is not None:
            turn = _Turn()
            self.slot = QueueSlot(turn, queue, job.request_id, chosen.replica, job.priority, waiting_since)
            self.slot.take()
            if (error := await turn.comes) is not None:
                raise error
            self._granted_at = self.upstream.clock.now()
        self._sent_at = self.upstream.clock.now()
        try:
            answer = await open_web_socket(
                self.upstream,
                job.call.target,
                job.engine_headers,
                job.request_id,
                subprotocols=subprotocols,
                largest=largest,
            )
        except UpstreamError:
            if self.slot is not None:
                self.slot.in_doubt = True
            raise
        self._opened_at = self.upstream.clock.now()
        self.status = answer.status if isinstance(answer, EngineResponse) else 101
        return answer

    @property
    def sent(self) -> bool:
        """Whether the engine may have the handshake."""
        return self._sent_at > 0

    @property
    def waiting_since(self) -> float | None:
        """Since when an unsent request waits, on the queue's clock; ``None`` if it was sent or has no slot."""
        return None if self.slot is None or self.sent else self.slot.ticket.arrived

    def failed(self, outcome: Outcome) -> FailedAttempt:
        """This attempt as the retry decision sees it."""
        return FailedAttempt(
            outcome,
            self.route.chosen.replica,
            sent=self.sent,
            repeatable=self._job.repeatable,
            launched=self.slot is not None and self.slot.launched,
        )

    def record(self, outcome: str, why: str = "") -> AttemptRecord:
        """The record of the attempt, which ends now with ``outcome``; ``why``: the message of its error."""
        route, chosen = self.route, self.route.chosen
        return AttemptRecord(
            chosen.backend,
            self.upstream.driver,
            chosen.replica,
            chosen.model,
            route.reason,
            route.attempted,
            outcome,
            why,
            self.status,
            self.slot is not None,
            self._began,
            self._granted_at or None,
            self._sent_at or None,
            self._opened_at or None,
            self.upstream.clock.now(),
            route.details,
        )

    def release(self) -> None:
        self.route.chosen.load.end()
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.release()


class _Turn:
    """A ``SlotHolder`` for a coroutine to wait on: ``comes`` has the error of a rejection."""

    def __init__(self) -> None:
        self.comes: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()

    def granted(self) -> None:
        if not self.comes.done():
            self.comes.set_result(None)

    def rejected(self, error: RequestError) -> None:
        if not self.comes.done():
            self.comes.set_result(error)
