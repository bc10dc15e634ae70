"""``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from enginehouse import InvalidRequest
from enginehouse_sim.model.text import piece_of, text_of
from enginehouse_sim.scheduler.output import TokenLogprobs
from enginehouse_sim.server.answer import Answer, Piece
from enginehouse_sim.server.call import DONE, Call
from enginehouse_sim.server.endpoints.logprobs import completion_logprobs, prompt_logprobs
from enginehouse_sim.server.endpoints.sampling import SamplingBody, work_of
from enginehouse_sim.server.generation import Run
from enginehouse_sim.server.openai_parts import Alternatives, NotNegative, new_id, usage
from enginehouse_sim.server.prompt_scores import prompt_scores
from enginehouse_sim.server.prompts import PromptInput, prompts_of
from enginehouse_sim.server.simulation import Simulation


class CompletionBody(SamplingBody, kw_only=True):
    """What is read of the request."""

    prompt: PromptInput
    max_tokens: NotNegative | None = None
    echo: bool = False
    logprobs: Alternatives | None = None


async def completions(simulation: Simulation, call: Call) -> None:
    """Continue one or more prompts."""
    body = call.decode(CompletionBody)
    if body.max_tokens == 0 and not body.echo:
        raise InvalidRequest("max_tokens is 0, which asks for nothing: ask for one token at least, or for 'echo'")
    reply = _Reply(simulation, call, body)
    with simulation.generator.run(reply.work, streams=bool(body.stream)) as run:
        if body.stream:
            await reply.stream(run)
        else:
            await run.finished()
            await call.json(reply.whole(run))


class _Reply:
    """How one request is answered."""

    def __init__(self, simulation: Simulation, call: Call, body: CompletionBody) -> None:
        self._seed = simulation.settings.core.seed
        self._call = call
        self._body = body
        created = int(time.time())
        self._head = {"id": new_id("cmpl", call), "object": "text_completion", "created": created, "model": body.model}
        self.work = work_of(
            simulation,
            str(self._head["id"]),
            body,
            prompts_of(body.prompt),
            max_tokens=body.max_tokens,
            grammar=body.grammar,
            logprobs=body.logprobs,
        )
        self._shown = [0] * self.work.size
        """The characters of each answer that a stream has shown."""

    def whole(self, run: Run) -> dict[str, Any]:
        """The answers at once."""
        answer = {**self._head, "choices": [self._choice(answer) for answer in run.answers], "usage": usage(run)}
        if run.answers[0].kv_transfer_params is not None:
            answer["kv_transfer_params"] = run.answers[0].kv_transfer_params
        return answer

    async def stream(self, run: Run) -> None:
        """The answers as they come."""
        call, body = self._call, self._body
        greeted: set[int] = set()
        await call.open_stream()
        async for piece in run.pieces():
            first = piece.choice not in greeted
            greeted.add(piece.choice)
            if piece.text or piece.finish or body.return_token_ids or piece.logprobs or (first and body.echo):
                await call.event(self._chunk(piece, first, run))
        if body.tells_usage:
            await call.event({**self._head, "choices": [], "usage": usage(run)})
        await call.close_stream(DONE)

    def _chunk(self, piece: Piece, first: bool, run: Run) -> dict[str, Any]:
        echoed = self._prompt(piece.choice) if first and self._body.echo else ()
        text = text_of(echoed) + piece.text
        choice: dict[str, Any] = {
            "index": piece.choice,
            "text": text,
            "logprobs": self._logprobs(piece.choice, echoed, piece.token_ids, piece.logprobs),
            "finish_reason": piece.finish,
        }
        self._shown[piece.choice] += len(text)
        if piece.finish:
            choice["stop_reason"] = piece.stop_reason
        if self._body.return_token_ids:
            choice["token_ids"] = piece.token_ids
            if first:
                choice["prompt_token_ids"] = self._prompt(piece.choice)
        event = {**self._head, "choices": [choice]}
        if self._body.tells_usage_always:
            event["usage"] = usage(run)
        return event

    def _choice(self, answer: Answer) -> dict[str, Any]:
        body, prompt = self._body, self._prompt(answer.choice)
        echoed = prompt if body.echo else ()
        choice: dict[str, Any] = {
            "index": answer.choice,
            "text": text_of(echoed) + answer.text,
            "logprobs": self._logprobs(answer.choice, echoed, answer.token_ids, answer.logprobs),
            "finish_reason": answer.finish if self.work.max_tokens else "length",
            "stop_reason": answer.stop_reason,
        }
        if body.return_token_ids:
            choice["token_ids"] = answer.token_ids
            choice["prompt_token_ids"] = prompt
        if body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(prompt_scores(self._seed, prompt, body.prompt_logprobs))
        return choice

    def _prompt(self, choice: int) -> Sequence[int]:
        return self.work.prompts[choice // self.work.choices].token_ids

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
