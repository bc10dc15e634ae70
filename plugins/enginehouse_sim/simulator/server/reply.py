"""The common part of chats and completions: replies of generated text, whole or as a stream."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from enginehouse_sim.simulator.server.bodies import SamplingBody
from enginehouse_sim.simulator.server.http import DONE, Call
from enginehouse_sim.simulator.server.runs import Piece, Run, RunAnswer
from enginehouse_sim.simulator.server.simulation import Simulation
from enginehouse_sim.simulator.server.work import Work

BodyT = TypeVar("BodyT", bound=SamplingBody)


def new_id(prefix: str, call: Call) -> str:
    """The id of a response: the request's ``X-Request-Id``, or a random one."""
    given = call.header(b"x-request-id")
    return f"{prefix}-{given.decode('latin-1') if given else f'{random.getrandbits(96):024x}'}"


def usage(run: Run) -> dict[str, Any]:
    """The ``usage`` of the answers so far."""
    prompt_tokens, completion_tokens = run.work.prompt_tokens, run.completion_tokens
    counted: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if run.cached_tokens > 0:
        counted["prompt_tokens_details"] = {"cached_tokens": run.cached_tokens}
    return counted


class Reply(ABC, Generic[BodyT]):
    """The reply to one request. ``head`` begins the whole reply, ``chunk_head`` every event of a stream."""

    def __init__(
        self, simulation: Simulation, body: BodyT, work: Work, head: dict[str, Any], chunk_head: dict[str, Any]
    ) -> None:
        self._body = body
        self._work = work
        self._simulation = simulation
        self._head = head
        self._chunk_head = chunk_head

    async def send(self, call: Call) -> None:
        """Generate the answers, and send them."""
        with self._simulation.run(self._work, streams=bool(self._body.stream)) as run:
            if self._body.stream:
                await self._stream(run, call)
            else:
                await run.finished()
                await call.json(self._whole(run))

    @abstractmethod
    def _choice(self, answer: RunAnswer) -> dict[str, Any]:
        """A finished answer, as an element of ``choices``."""

    @abstractmethod
    def _events(self, piece: Piece, first: bool, run: Run) -> Iterator[dict[str, Any]]:
        """The events for a piece of an answer. ``first``: it is the answer's first piece."""

    def _whole(self, run: Run) -> dict[str, Any]:
        choices = [self._choice(answer) for answer in run.answers]
        reply = {**self._head, "choices": choices, "usage": usage(run)}
        if run.answers[0].kv_transfer_params is not None:
            reply["kv_transfer_params"] = run.answers[0].kv_transfer_params
        return reply

    async def _stream(self, run: Run, call: Call) -> None:
        started: set[int] = set()
        await call.open_stream()
        async for piece in run.pieces():
            for event in self._events(piece, piece.choice not in started, run):
                await call.event(event)
            started.add(piece.choice)
        if self._body.includes_usage:
            await call.event({**self._chunk_head, "choices": [], "usage": usage(run)})
        await call.close_stream(DONE)

    def _is_visible(self, piece: Piece) -> bool:
        return bool(piece.text or piece.finish or self._body.return_token_ids or piece.logprobs)

    def _event(self, choice: dict[str, Any], run: Run) -> dict[str, Any]:
        event = {**self._chunk_head, "choices": [choice]}
        if self._body.includes_usage_always:
            event["usage"] = usage(run)
        return event

    def _with_ending(self, choice: dict[str, Any], piece: Piece) -> dict[str, Any]:
        """``choice`` with the fields that only some pieces have."""
        if piece.finish:
            choice["stop_reason"] = piece.stop_reason
        if self._body.return_token_ids:
            choice["token_ids"] = piece.token_ids
        return choice
