"""``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from enginehouse_sim.simulator.domain.outputs import TokenLogprobs
from enginehouse_sim.simulator.model.text import piece_of
from enginehouse_sim.simulator.server.bodies import Alternatives, Positive, SamplingBody, work_of
from enginehouse_sim.simulator.server.http import Call
from enginehouse_sim.simulator.server.reply import Reply, new_id
from enginehouse_sim.simulator.server.runs import Piece, Run, RunAnswer
from enginehouse_sim.simulator.server.simulation import Simulation
from enginehouse_sim.simulator.server.work import PromptInput, Work, prompts_of


class CompletionBody(SamplingBody, kw_only=True):
    """The fields that the endpoint reads. It ignores all others.

    ``follows``: the id of a request that a llumlet has moved here. The reply is the rest of its answer, after
    ``prompt``.
    """

    prompt: PromptInput
    max_tokens: Positive | None = None
    logprobs: Alternatives | None = None
    follows: str | None = None


async def completions(simulation: Simulation, call: Call) -> None:
    """Continue one or more prompts."""
    body = call.decode(CompletionBody)
    work = work_of(
        simulation,
        new_id("cmpl", call),
        body,
        prompts_of(body.prompt),
        max_tokens=body.max_tokens,
        grammar=body.grammar,
        logprobs=body.logprobs,
        follows=body.follows,
    )
    await _CompletionReply(simulation, body, work).send(call)


class _CompletionReply(Reply[CompletionBody]):
    """Replies with the texts after the prompts. ``_shown``: the number of characters of each answer already sent."""

    def __init__(self, simulation: Simulation, body: CompletionBody, work: Work) -> None:
        head = {"id": work.id, "object": "text_completion", "created": int(time.time()), "model": body.model}
        super().__init__(simulation, body, work, head, head)
        self._shown = [0] * work.size

    def _choice(self, answer: RunAnswer) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": answer.choice,
            "text": answer.text,
            "logprobs": self._logprobs(answer.choice, answer.token_ids, answer.logprobs),
            "finish_reason": answer.finish,
            "stop_reason": answer.stop_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = answer.token_ids
            choice["prompt_token_ids"] = self._prompt(answer.choice)
        return choice

    def _events(self, piece: Piece, first: bool, run: Run) -> Iterator[dict[str, Any]]:
        if not self._is_visible(piece):
            return
        choice = {
            "index": piece.choice,
            "text": piece.text,
            "logprobs": self._logprobs(piece.choice, piece.token_ids, piece.logprobs),
            "finish_reason": piece.finish,
        }
        self._shown[piece.choice] += len(piece.text)
        self._with_ending(choice, piece)
        if self._body.return_token_ids and first:
            choice["prompt_token_ids"] = self._prompt(piece.choice)
        yield self._event(choice, run)

    def _prompt(self, choice: int) -> Sequence[int]:
        return self._work.prompts[choice // self._work.choices].token_ids

    def _logprobs(self, choice: int, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> Any:
        """The tokens, their places in the text, and the likeliest tokens there."""
        top = self._body.logprobs
        if top is None:
            return None
        texts, offset = [piece_of(token) for token in token_ids], self._shown[choice]
        likely = [alternatives[: max(1, top)] for alternatives in logprobs]
        return {
            "text_offset": [offset + sum(map(len, texts[:at])) for at in range(len(texts))],
            "token_logprobs": [alternatives[0][1] for alternatives in logprobs],
            "tokens": texts,
            "top_logprobs": [{piece_of(token): logprob for token, logprob in some} for some in likely],
        }
