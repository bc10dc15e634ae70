"""A request comes: a place is kept for it, and its outputs go back to where it came from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from enginehouse import RequestError
from enginehouse_sim.llumlet.arrivals import Arrivals
from enginehouse_sim.llumlet.parcels import (
    Accepted,
    Broken,
    Commit,
    Committed,
    FromDestination,
    FromSource,
    Knock,
    Progress,
    Refused,
)
from enginehouse_sim.scheduler.output import EngineCoreOutput
from enginehouse_sim.server.batching_engine import BatchingEngine
from enginehouse_sim.server.engine import Listener
from enginehouse_sim.server.traffic import Traffic


class _Forwarder:
    """Listens to a request for somebody elsewhere."""

    def __init__(self) -> None:
        self.parcels: asyncio.Queue[Progress | Broken] = asyncio.Queue()

    def scheduled(self, now: float) -> None:
        pass

    def take(self, output: EngineCoreOutput, now: float) -> None:
        self.parcels.put_nowait(Progress(output))

    def fail(self, error: RequestError) -> None:
        self.parcels.put_nowait(Broken(error.message))


class Reception:
    """Takes requests in, as far as there is room for them; ``on_left`` is told when nobody wants one any more."""

    def __init__(
        self,
        engine: BatchingEngine,
        arrivals: Arrivals,
        traffic: Traffic,
        on_left: Callable[[str, Listener], None],
    ) -> None:
        self._engine = engine
        self._on_left = on_left
        self._arrivals = arrivals
        self._traffic = traffic
        self._here: set[str] = set()

    async def receive(self, parcels: AsyncIterator[FromSource], context: object) -> AsyncIterator[FromDestination]:
        """One request, from the knock to its last output; when the source hangs up it ends."""
        knock = await parcels.__anext__()
        assert isinstance(knock, Knock)
        if why := self._why_not(knock):
            yield Refused(why)
            return
        forwarder = _Forwarder()
        with self._traffic.incoming.travel(knock.num_tokens):
            yield Accepted()
            commit = await parcels.__anext__()
            assert isinstance(commit, Commit)
            try:
                self._begin(commit, forwarder)
            except RequestError as error:
                yield Refused(error.message)
                return
        self._here.add(knock.request_id)
        try:
            yield Committed()
            finished = False
            while not finished:
                parcel = await forwarder.parcels.get()
                yield parcel
                finished = isinstance(parcel, Broken) or parcel.output.finish_reason is not None
        finally:
            self._here.discard(knock.request_id)
            self._on_left(knock.request_id, forwarder)

    def _begin(self, commit: Commit, forwarder: _Forwarder) -> None:
        request = commit.request
        if commit.num_computed_tokens:
            self._arrivals.expect(request.request_id, commit.num_computed_tokens)
        try:
            self._engine.begin(request, forwarder)
        except RequestError:
            self._arrivals.forget(request)
            raise

    def _why_not(self, knock: Knock) -> str:
        engine, state = self._engine, self._engine.state
        if engine.failure or engine.sleep_level:
            return "the engine takes no requests now"
        if engine.knows(knock.request_id):
            return f"a request '{knock.request_id}' is here already"
        if not self._traffic.incoming.slots:
            return "enough requests are coming already"
        if any(request.request_id not in self._here for request in state.staging):
            return "requests wait here already"
        if len(state.running) + len(state.staging) >= state.constants.max_num_seqs:
            return "enough requests run here already"
        if -(-knock.num_tokens // state.constants.block_size) + 1 > state.kv_cache.num_free_blocks:
            return "there are too few free blocks"
        return ""
