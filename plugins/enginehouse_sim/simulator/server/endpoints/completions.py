"""``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.domain.outputs import TokenLogprobs
from enginehouse_sim.simulator.model.text import piece_of, text_of
from enginehouse_sim.simulator.server.endpoints.common import Alternatives, NotNegative, new_id
from enginehouse_sim.simulator.server.endpoints.logprobs import completion_logprobs, prompt_logprobs
from enginehouse_sim.simulator.server.endpoints.reply import Reply
from enginehouse_sim.simulator.server.endpoints.sampling import SamplingBody, work_of
from enginehouse_sim.simulator.server.generation.answer import Answer, Piece
from enginehouse_sim.simulator.server.generation.prompt_scores import prompt_scores
from enginehouse_sim.simulator.server.generation.prompts import PromptInput, prompts_of
from enginehouse_sim.simulator.server.generation.run import Run
from enginehouse_sim.simulator.server.generation.work import Work
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


class CompletionBody(SamplingBody, kw_only=True):
    """The fields that the endpoint reads. It ignores all others.

    ``follows``: the id of a request that a llumlet has moved here. The reply is the rest of its answer, after
    ``prompt``.
    """

    prompt: PromptInput
    max_tokens: NotNegative | None = None
    echo: bool = False
    logprobs: Alternatives | None = None
    follows: str | None = None


async def completions(simulation: Simulation, call: Call) -> None:
    """Continue one or more prompts."""
    body = call.decode(CompletionBody)
    if body.max_tokens == 0 and not body.echo:
        raise InvalidRequest("max_tokens is 0, which asks for nothing: ask for one token at least, or for 'echo'")
    work = work_of(
        simulation,
        new_id("cmpl", call),
        body,
        prompts_of(body.prompt),
        max_tokens=body.max_tokens,
        grammar=body.grammar,
        logprobs=body.logprobs,
    )
    if body.follows is not None:
        work = msgspec.structs.replace(work, follows=body.follows)
    await _CompletionReply(simulation, body, work).send(call)


class _CompletionReply(Reply[CompletionBody]):
    """Replies with the texts after the prompts. ``_shown``: the number of characters of each answer already sent."""

    def __init__(self, simulation: Simulation, body: CompletionBody, work: Work) -> None:
        head = {"id": work.id, "object": "text_completion", "created": int(time.time()), "model": body.model}
        super().__init__(simulation, body, work, head, head)
        self._shown = [0] * work.size

    def _choice(self, answer: Answer) -> dict[str, Any]:
        body, prompt = self._body, self._prompt(answer.choice)
        echoed = prompt if body.echo else ()
        choice: dict[str, Any] = {
            "index": answer.choice,
            "text": text_of(echoed) + answer.text,
            "logprobs": self._logprobs(answer.choice, echoed, answer.token_ids, answer.logprobs),
            "finish_reason": answer.finish if self._work.max_tokens else "length",
            "stop_reason": answer.stop_reason,
        }
        if body.return_token_ids:
            choice["token_ids"] = answer.token_ids
            choice["prompt_token_ids"] = prompt
        if body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(prompt_scores(self._seed, prompt, body.prompt_logprobs))
        return choice

    def _events(self, piece: Piece, first: bool, run: Run) -> Iterator[dict[str, Any]]:
        if not self._is_visible(piece) and not (first and self._body.echo):
            return
        echoed = self._prompt(piece.choice) if first and self._body.echo else ()
        text = text_of(echoed) + piece.text
        choice = {
            "index": piece.choice,
            "text": text,
            "logprobs": self._logprobs(piece.choice, echoed, piece.token_ids, piece.logprobs),
            "finish_reason": piece.finish,
        }
        self._shown[piece.choice] += len(text)
        self._with_ending(choice, piece)
        if self._body.return_token_ids and first:
            choice["prompt_token_ids"] = self._prompt(piece.choice)
        yield self._event(choice, run)

    def _prompt(self, choice: int) -> Sequence[int]:
        return self._work.prompts[choice // self._work.choices].token_ids

    def _logprobs(
        self, choice: int, echoed: Sequence[int], token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
    ) -> Any:
        top = self._body.logprobs
        if top is None:
            return None
        scores = [score.logprobs for score in prompt_scores(self._seed, echoed, max(1, top))] if echoed else []
        before: list[TokenLogprobs | None] = [None, *scores] if echoed else []
        texts = [piece_of(token) for token in (*echoed, *token_ids)]
        return completion_logprobs([*before, *logprobs], texts, top, self._shown[choice])
