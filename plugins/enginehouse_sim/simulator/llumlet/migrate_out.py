"""Migration out: copies a request's KV while the request runs, and stops it only for the last blocks.

As in Llumnix's live migration, KV is append-only, so each stage copies the tokens that were added during the stage
before. The downtime is that of the last stage, whatever the length of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc

from enginehouse_sim.simulator.core.migration import computed_tokens, copy_stages
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, MovedRequest
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.llumlet import messages
from enginehouse_sim.simulator.llumlet.messages import (
    Commit,
    Committed,
    DestinationFailed,
    DestinationMessage,
    ForwardedOutput,
    Reserve,
    Reserved,
)
from enginehouse_sim.simulator.server.answers import Answer
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, Clock
from enginehouse_sim.simulator.server.listeners import EngineFailed, Followers, RequestListener, RequestLocation
from enginehouse_sim.simulator.steps.costs import KvTransfer

_TIMEOUT_S = 5.0
"""Seconds for the destination to reply, Llumnix's RPC timeout; after that the request continues here."""
_STEP_S = 0.001
"""Seconds between checks whether a step is over."""

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class OutgoingMigration:
    """The migration of one request over ``call``. Afterwards the request's outputs come back to its listener."""

    def __init__(self, request_id: str, engine: BatchingEngine, call: Call, transfer: KvTransfer, clock: Clock) -> None:
        self.request_id = request_id
        self._engine = engine
        self._call = call
        self._transfer = transfer
        self._clock = clock
        self.listener: RequestListener | None = None
        self._is_finished = False

    async def run(self) -> bool:
        """Migrate the request. Return ``False`` if it stays here; it then continues as before."""
        request = self._request()
        if request is None:
            return False
        try:
            await self._send(Reserve(request.request_id, request.num_tokens, request.max_num_tokens))
            if not isinstance(await self._answer(), Reserved):
                return False
            copied = await copy_stages(self._engine.state, self.request_id, self._transfer, self._clock.sleep)
            return await self._commit(copied)
        except (grpc.aio.AioRpcError, asyncio.TimeoutError):
            return False
        finally:
            if self.listener is None:
                self._call.cancel()

    async def forward_outputs(self) -> None:
        """Pass the outputs from the destination to the listener, until the request has finished."""
        listener = self.listener
        assert listener is not None
        problem = "the destination is gone"
        try:
            while (message := await self._receive()) is not None and not self._is_finished:
                if isinstance(message, ForwardedOutput):
                    listener.on_output(message.output, self._clock.now())
                    if message.output.finish_reason is not None:
                        return
                elif isinstance(message, DestinationFailed):
                    problem = message.why
        except grpc.aio.AioRpcError as error:
            problem = error.details() or problem
        except asyncio.CancelledError:  # the caller of finish_requests or abort has told the listener
            return
        if not self._is_finished:
            listener.on_error(EngineFailed(f"The request migrated, and could not continue: {problem}"))

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Finish the request where it runs now, without a call to its listener."""
        self._is_finished = True
        self._call.cancel()

    def abort(self) -> None:
        """Finish the request where it runs now, and tell its listener."""
        listener, self.listener = self.listener, None
        self._is_finished = True
        self._call.cancel()
        if listener is not None:
            listener.on_output(EngineCoreOutput(self.request_id, (), "abort"), self._clock.now())

    # --- the commit

    async def _commit(self, copied: int) -> bool:
        current = self._request()
        if current is None:
            return False
        computed = computed_tokens(current)
        request, listener = self._engine.detach_request(self.request_id)
        self._set_location(listener, self)
        try:
            await self._clock.sleep(self._transfer.seconds(max(0, computed - copied)))
            await self._send(Commit(MovedRequest.of(request), computed))
            if isinstance(await self._answer(), Committed):
                self.listener = listener
                return True
        except (grpc.aio.AioRpcError, asyncio.TimeoutError):
            self._call.cancel()
        await self._resume_here(request, listener)
        return False

    async def _resume_here(self, request: RequestState, listener: RequestListener) -> None:
        """Continue the request here once its last step is over, unless its client has closed."""
        while self._engine.is_known(self.request_id):
            await self._clock.sleep(_STEP_S)
        if not self._is_finished:
            self._set_location(listener, self._engine)
            self._engine.add_request(request, listener)

    def _set_location(self, listener: RequestListener, location: RequestLocation) -> None:
        if isinstance(listener, Answer | Followers):
            listener.location = location

    def _request(self) -> RequestState | None:
        return self._engine.state.requests.get(self.request_id)

    async def _send(self, message: Reserve | Commit) -> None:
        await self._call.write(messages.encode(message))

    async def _answer(self) -> DestinationMessage | None:
        return await asyncio.wait_for(self._receive(), _TIMEOUT_S)

    async def _receive(self) -> DestinationMessage | None:
        message = await self._call.read()
        return messages.read_destination(message) if isinstance(message, bytes) else None
