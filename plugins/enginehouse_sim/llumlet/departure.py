"""A request leaves: its keys and values are copied while it goes on, and only for the last of them it stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc

from enginehouse_sim.clock import Clock
from enginehouse_sim.llumlet import parcels
from enginehouse_sim.llumlet.parcels import Accepted, Broken, Commit, Committed, FromDestination, Knock, Progress
from enginehouse_sim.scheduler.output import EngineCoreOutput
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.server.answer import Answer
from enginehouse_sim.server.batching_engine import BatchingEngine
from enginehouse_sim.server.engine import Ends, EngineFailed, Listener
from enginehouse_sim.steps.transfer import KvTransfer

_STAGES = 3
_PATIENCE_S = 5.0
"""How long the destination may take to answer; then the request goes on here."""
_STEP_S = 0.001
"""How often it is looked whether a step is over."""
_LAST_STAGE_BLOCKS = 16
"""So little is copied while the request stands still: it takes less than a step."""

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class Departure:
    """One request's way to another engine, over ``call``; afterwards its outputs come back to whoever listens to it."""

    def __init__(self, request_id: str, engine: BatchingEngine, call: Call, transfer: KvTransfer, clock: Clock) -> None:
        self.request_id = request_id
        self._engine = engine
        self._call = call
        self._transfer = transfer
        self._clock = clock
        self.listener: Listener | None = None
        self._is_unwanted = False

    async def go(self) -> bool:
        """Move it; whether it has moved. If it has not, it goes on here, as if nothing had been."""
        request = self._request()
        if request is None:
            return False
        try:
            await self._send(Knock(request.request_id, request.num_tokens, request.max_num_tokens))
            if not isinstance(await self._answer(), Accepted):
                return False
            copied = await self._copy_ahead()
            return await self._commit(copied)
        except (grpc.aio.AioRpcError, asyncio.TimeoutError):
            return False
        finally:
            if self.listener is None:
                self._call.cancel()

    async def follow(self) -> None:
        """Give what comes back to whoever listens, until the request has ended."""
        listener = self.listener
        assert listener is not None
        problem = "the engine that it had moved to is gone"
        try:
            while (parcel := await self._receive()) is not None:
                if isinstance(parcel, Progress):
                    listener.take(parcel.output, self._clock.now())
                    if parcel.output.finish_reason is not None:
                        return
                elif isinstance(parcel, Broken):
                    problem = parcel.why
        except grpc.aio.AioRpcError as error:
            problem = error.details() or problem
        except asyncio.CancelledError:  # whoever ended it knows
            return
        listener.fail(EngineFailed(f"The request moved, and then could not go on: {problem}"))

    def end(self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED) -> None:
        """Nobody wants the rest of it: it ends where it is now."""
        self._is_unwanted = True
        self._call.cancel()

    def abort(self) -> None:
        """It ends where it is now, and whoever listens is told."""
        listener, self.listener = self.listener, None
        self._call.cancel()
        if listener is not None:
            listener.take(EngineCoreOutput(self.request_id, (), "abort"), self._clock.now())

    # --- the way there

    async def _copy_ahead(self) -> int:
        """Copy what is computed, again and again, until little is left; how many tokens that were."""
        copied = 0
        for _ in range(_STAGES):
            request = self._request()
            left = _computed(request) - copied if request is not None else 0
            if left <= _LAST_STAGE_BLOCKS * self._engine.state.constants.block_size:
                break
            await self._clock.sleep(self._transfer.seconds(left))
            copied += left
        return copied

    async def _commit(self, copied: int) -> bool:
        current = self._request()
        if current is None:
            return False
        computed = _computed(current)
        request, listener = self._engine.hand_out(self.request_id)
        self._live_at(listener, self)
        try:
            await self._clock.sleep(self._transfer.seconds(max(0, computed - copied)))
            await self._send(Commit(request, computed))
            if isinstance(await self._answer(), Committed):
                self.listener = listener
                return True
        except (grpc.aio.AioRpcError, asyncio.TimeoutError):
            self._call.cancel()
        await self._go_on_here(request, listener)
        return False

    async def _go_on_here(self, request: RequestState, listener: Listener) -> None:
        """As if nothing had been, once the step is over that it was part of; not for a client that has left."""
        while self._engine.knows(self.request_id):
            await self._clock.sleep(_STEP_S)
        if not self._is_unwanted:
            self._live_at(listener, self._engine)
            self._engine.begin(request, listener)

    def _live_at(self, listener: Listener, home: Ends) -> None:
        if isinstance(listener, Answer):
            listener.home = home

    def _request(self) -> RequestState | None:
        return self._engine.state.requests.get(self.request_id)

    async def _send(self, parcel: Knock | Commit) -> None:
        await self._call.write(parcels.encode(parcel))

    async def _answer(self) -> FromDestination | None:
        return await asyncio.wait_for(self._receive(), _PATIENCE_S)

    async def _receive(self) -> FromDestination | None:
        parcel = await self._call.read()
        return parcels.read_destination(parcel) if isinstance(parcel, bytes) else None


def _computed(request: RequestState) -> int:
    """Tokens whose keys and values are certainly there: not those that a step under way computes."""
    return min(request.num_computed_tokens, request.num_tokens - 1)
