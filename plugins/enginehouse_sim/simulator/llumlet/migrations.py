"""Migrations between two engines, over one gRPC stream for each request.

The source sends ``Reserve`` and, after ``Reserved``, ``Commit``. The destination replies ``Committed``, and then sends
every output of the request, until the source closes the stream. Before ``Committed``, it may reply ``Refused``.

As in Llumnix's live migration, KV is append-only, so each stage of the copy has the tokens that were added during the
stage before. The downtime is that of the last stage, whatever the length of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc
import msgspec

from enginehouse import RequestError
from enginehouse_sim.simulator.core.migration import MigratedKv, MigrationSlots, computed_tokens, copy_stages
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, MovedRequest
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.server.batching_engine import (
    BatchingEngine,
    EngineClock,
    EngineFailed,
    Follower,
    Followers,
    RequestListener,
    RequestLocation,
)
from enginehouse_sim.simulator.server.runs import RunAnswer
from enginehouse_sim.simulator.steps.costs import KvTransfer

MIGRATE_IN = "/enginehouse.sim.Migration/MigrateIn"
"""The full name of the gRPC method."""


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """Ask for a place for a request of ``num_tokens``, which can grow to ``most_tokens``."""

    request_id: str
    num_tokens: int
    most_tokens: int


class Reserved(msgspec.Struct, frozen=True, tag=True):
    """The destination keeps a place."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The destination does not take the request."""

    why: str


class Commit(msgspec.Struct, frozen=True, tag=True):
    """The request no longer runs at the source; the KV of its first ``num_computed_tokens`` has been copied."""

    request: MovedRequest
    num_computed_tokens: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The request runs at the destination."""


class ForwardedOutput(msgspec.Struct, frozen=True, tag=True):
    """An output of the request."""

    output: EngineCoreOutput


class DestinationFailed(msgspec.Struct, frozen=True, tag=True):
    """The destination can no longer serve the request."""

    why: str


SourceMessage = Reserve | Commit
DestinationMessage = Reserved | Refused | Committed | ForwardedOutput | DestinationFailed

encode = msgspec.msgpack.Encoder().encode
read_source = msgspec.msgpack.Decoder(SourceMessage).decode
read_destination = msgspec.msgpack.Decoder(DestinationMessage).decode


class _Forwarder:
    """Queues the outputs of a request for the source."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[ForwardedOutput | DestinationFailed] = asyncio.Queue()

    def on_scheduled(self, now: float) -> None:
        pass

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        self.messages.put_nowait(ForwardedOutput(output))

    def on_error(self, error: RequestError) -> None:
        self.messages.put_nowait(DestinationFailed(error.message))


class IncomingMigrations:
    """Accepts requests from other engines while there is room for them.

    A migrated request has ``Followers``: the source, until it closes the stream, and clients that ask for the rest.
    """

    def __init__(self, engine: BatchingEngine, migrated_kv: MigratedKv, slots: MigrationSlots) -> None:
        self._engine = engine
        self._migrated_kv = migrated_kv
        self._slots = slots
        self._migrated_in: set[str] = set()

    async def receive(
        self, messages: AsyncIterator[SourceMessage], context: object
    ) -> AsyncIterator[DestinationMessage]:
        """Serve one request, from ``Reserve`` to its last output, or until the source closes the stream."""
        reserve = await messages.__anext__()
        assert isinstance(reserve, Reserve)
        if why := self._refusal(reserve):
            yield Refused(why)
            return
        forwarder = _Forwarder()
        source = Follower(Followers(reserve.request_id, self._engine))
        with self._slots.incoming.occupy(reserve.num_tokens):
            yield Reserved()
            commit = await messages.__anext__()
            assert isinstance(commit, Commit)
            try:
                self._begin(commit, source, forwarder)
            except RequestError as error:
                yield Refused(error.message)
                return
        self._migrated_in.add(reserve.request_id)
        try:
            yield Committed()
            finished = False
            while not finished:
                message = await forwarder.messages.get()
                yield message
                finished = isinstance(message, DestinationFailed) or message.output.finish_reason is not None
        finally:
            self._migrated_in.discard(reserve.request_id)
            source.finish_requests((reserve.request_id,))

    def _begin(self, commit: Commit, source: Follower, forwarder: _Forwarder) -> None:
        request = commit.request.state()
        if commit.num_computed_tokens:
            self._migrated_kv.expect(request.request_id, commit.num_computed_tokens)
        try:
            self._engine.add_request(request, source.followers)
        except RequestError:
            self._migrated_kv.release(request)
            raise
        source.begin(forwarder)

    def _refusal(self, reserve: Reserve) -> str:
        engine, state = self._engine, self._engine.state
        if engine.failure or engine.sleep_level:
            return "the engine takes no requests now"
        if engine.is_known(reserve.request_id):
            return f"a request '{reserve.request_id}' exists already"
        if not self._slots.incoming.available:
            return "too many migrations are under way"
        if any(request.request_id not in self._migrated_in for request in state.waiting):
            return "requests are waiting already"
        if len(state.running) + len(state.waiting) >= state.constants.max_num_seqs:
            return "max_num_seqs requests run already"
        if -(-reserve.num_tokens // state.constants.block_size) + 1 > state.kv_cache.num_free_blocks:
            return "there are too few free blocks"
        return ""


_TIMEOUT_S = 5.0
"""Seconds for the destination to reply, Llumnix's RPC timeout; after that the request continues here."""
_STEP_S = 0.001
"""Seconds between checks whether a step is over."""

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class OutgoingMigration:
    """The migration of one request over ``call``. Afterwards the request's outputs come back to its listener."""

    def __init__(
        self, request_id: str, engine: BatchingEngine, call: Call, transfer: KvTransfer, clock: EngineClock
    ) -> None:
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
        if isinstance(listener, RunAnswer | Followers):
            listener.location = location

    def _request(self) -> RequestState | None:
        return self._engine.state.requests.get(self.request_id)

    async def _send(self, message: Reserve | Commit) -> None:
        await self._call.write(encode(message))

    async def _answer(self) -> DestinationMessage | None:
        return await asyncio.wait_for(self._receive(), _TIMEOUT_S)

    async def _receive(self) -> DestinationMessage | None:
        message = await self._call.read()
        return read_destination(message) if isinstance(message, bytes) else None
