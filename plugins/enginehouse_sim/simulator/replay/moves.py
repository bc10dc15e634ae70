"""Copies live requests between the engines of a replay, as two llumlets do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from enginehouse_sim.simulator.llumlet.copying import computed_tokens, copy_stages
from enginehouse_sim.simulator.replay.played_answer import PlayedAnswer
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.steps.transfer import KvTransfer

_ENDED = "it has ended"


class Moves:
    """Moves requests. ``begin_step`` begins a step of an engine that may be idle."""

    def __init__(
        self, now: Callable[[], float], begin_step: Callable[[PlayedEngine], None], transfer: KvTransfer
    ) -> None:
        self._now = now
        self._begin_step = begin_step
        self._transfer = transfer
        self._count = count(1)

    async def copy(self, moved: PlayedAnswer, destination: PlayedEngine) -> str:
        """Copy the KV while the request runs, then continue it at ``destination``. Returns why it stays, or nothing."""
        source, request = moved.engine, moved.engine.state.requests.get(moved.id)
        if request is None:
            return _ENDED
        if destination.refuses(request):
            return f"'{destination.instance.name}' has no room for it"
        with (
            source.slots.outgoing.occupy(request.num_tokens),
            destination.slots.incoming.occupy(request.num_tokens),
        ):
            copied = await copy_stages(source.state, moved.id, self._transfer, asyncio.sleep)
            if not source.has(moved.id):
                return _ENDED
            computed = computed_tokens(request)
            detached, answer = source.detach(moved.id)
            await asyncio.sleep(self._transfer.seconds(max(0, computed - copied)))
        moved.engine, moved.id = destination, f"{moved.id.partition('+')[0]}+{next(self._count)}"
        answer.has_moved = True
        detached.request_id = moved.id
        destination.attach(detached, answer, self._now(), computed)
        self._begin_step(destination)
        return ""
