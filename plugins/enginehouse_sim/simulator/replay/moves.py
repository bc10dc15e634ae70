"""Moves live requests between the engines of a replay, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from enginehouse import CannotContinue
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.llumlet.copying import computed_tokens, copy_stages
from enginehouse_sim.simulator.replay.figures.record import ReadAheadRecord, RequestRecord
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest
from enginehouse_sim.simulator.steps.transfer import KvTransfer


class PlayedRequest(msgspec.Struct, gc=False):
    """A request of the trace with its number. Once an engine has it, it has a record, the engine, and an id there."""

    trace: TraceRequest
    number: int
    arrival: float
    record: RequestRecord | None = None
    engine: PlayedEngine | None = None
    engine_id: str = ""
    moves: int = 0


class Moves:
    """Moves requests. ``begin_step`` begins a step of an engine that may be idle."""

    def __init__(
        self, now: Callable[[], float], begin_step: Callable[[PlayedEngine], None], transfer: KvTransfer
    ) -> None:
        self._now = now
        self._begin_step = begin_step
        self._transfer = transfer

    async def replay(self, moved: PlayedRequest, destination: PlayedEngine) -> None:
        """Move as the migrator ``replay`` does: the destination computes all tokens so far, then continues after them.

        Raises ``CannotContinue`` if the request stays.
        """
        source, request = _live(moved)
        if not request.output_token_ids:
            raise CannotContinue("The request stays where it is: its answer has not begun")
        ahead = ReadAheadRecord(self._now())
        destination.attach(_reading(request, f"{moved.engine_id}/ahead"), ahead, self._now())
        self._begin_step(destination)
        await ahead.done.wait()
        if moved.engine is not source or moved.engine_id not in source.state.requests:
            raise CannotContinue("The stream has ended")
        self._hand_over(moved, source, destination)

    async def read_prompt(self, wanted: RequestState, record: RequestRecord, engine: PlayedEngine) -> None:
        """Let ``engine`` compute the prompt of a request that another engine answers, and copy the KV to that one."""
        ahead = ReadAheadRecord(self._now())
        engine.attach(_reading(wanted, wanted.request_id), ahead, self._now())
        self._begin_step(engine)
        await ahead.done.wait()
        record.is_read, record.cached_tokens = True, ahead.cached_tokens
        await asyncio.sleep(self._transfer.seconds(len(wanted.prompt_token_ids)))

    async def copy(self, moved: PlayedRequest, destination: PlayedEngine) -> bool:
        """Move as two llumlets do: copy the KV while the request runs. Return ``False`` if the request stays."""
        source, request = _live(moved)
        if destination.refuses(request):
            return False
        with (
            source.slots.outgoing.occupy(request.num_tokens),
            destination.slots.incoming.occupy(request.num_tokens),
        ):
            copied = await copy_stages(source.state, moved.engine_id, self._transfer, asyncio.sleep)
            if moved.engine_id not in source.state.requests:
                return False
            computed = computed_tokens(request)
            detached, record = source.detach(moved.engine_id)
            await asyncio.sleep(self._transfer.seconds(max(0, computed - copied)))
        self._attach(moved, detached, record, destination, computed)
        return True

    def _hand_over(self, moved: PlayedRequest, source: PlayedEngine, destination: PlayedEngine) -> None:
        detached, record = source.detach(moved.engine_id)
        self._attach(moved, detached, record, destination, 0)

    def _attach(
        self,
        moved: PlayedRequest,
        request: RequestState,
        record: RequestRecord,
        destination: PlayedEngine,
        copied: int,
    ) -> None:
        moved.moves += 1
        moved.engine, moved.engine_id = destination, f"{moved.number}+{moved.moves}"
        record.has_moved = True
        moving = msgspec.structs.replace(request, request_id=moved.engine_id)
        destination.attach(moving, record, self._now(), copied)
        self._begin_step(destination)


def _live(moved: PlayedRequest) -> tuple[PlayedEngine, RequestState]:
    source = moved.engine
    request = source.state.requests.get(moved.engine_id) if source is not None else None
    if source is None or request is None:
        raise CannotContinue("The stream has ended")
    return source, request


def _reading(request: RequestState, id: str) -> RequestState:
    """A request for one token after all tokens of ``request``."""
    return RequestState(
        request_id=id,
        prompt_token_ids=list(request.all_token_ids),
        max_tokens=1,
        ignore_eos=True,
        arrival_time=request.arrival_time,
        block_hashes=list(request.block_hashes),
    )
