"""Migration in: reserves a place for a request, and sends its outputs back to the source while that listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from enginehouse import RequestError
from enginehouse_sim.simulator.core.migration import MigratedKv, MigrationSlots
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.llumlet.messages import (
    Commit,
    Committed,
    DestinationFailed,
    DestinationMessage,
    ForwardedOutput,
    Refused,
    Reserve,
    Reserved,
    SourceMessage,
)
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine
from enginehouse_sim.simulator.server.listeners import Follower, Followers


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
