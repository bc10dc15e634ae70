"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from enginehouse import InvalidRequest
from enginehouse_sim.scheduler.output import TokenLogprobs
from enginehouse_sim.server.answer import Answer, Piece
from enginehouse_sim.server.call import DONE, Call
from enginehouse_sim.server.endpoints.logprobs import chat_logprobs, prompt_logprobs
from enginehouse_sim.server.endpoints.sampling import SamplingBody, work_of
from enginehouse_sim.server.endpoints.tools import Tool, ToolChoice, tool_call
from enginehouse_sim.server.generation import Run
from enginehouse_sim.server.openai_parts import Alternatives, Positive, new_id, usage
from enginehouse_sim.server.prompt_scores import Score, prompt_scores
from enginehouse_sim.server.prompts import Message, chat_prompt
from enginehouse_sim.server.simulation import Simulation
from enginehouse_sim.server.work import Prompt, Work

_CHUNK = "chat.completion.chunk"


class ChatBody(SamplingBody, kw_only=True):
    """What is read of the request."""

    messages: list[Message]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


async def chat(simulation: Simulation, call: Call) -> None:
    """Answer a conversation."""
    body = call.decode(ChatBody)
    reply = _Reply(simulation, call, body)
    with simulation.generator.run(reply.work, streams=bool(body.stream)) as run:
        if body.stream:
            await reply.stream(run)
        else:
            await run.finished()
            await call.json(reply.whole(run))


class _Reply:
    """How one request is answered."""

    def __init__(self, simulation: Simulation, call: Call, body: ChatBody) -> None:
        self._simulation = simulation
        self._call = call
        self._body = body
        self._head = {"id": new_id("chatcmpl", call), "created": int(time.time()), "model": body.model}
        if body.continue_final_message and body.add_generation_prompt:
            raise InvalidRequest("'continue_final_message' and 'add_generation_prompt' exclude each other")
        prompt = chat_prompt(
            body.messages,
            continue_final=body.continue_final_message,
            add_generation_prompt=body.add_generation_prompt is not False,
        )
        self._tool = tool_call(body.tools or (), body.tool_choice, prompt.token_ids)
        self.work = self._work([prompt])

    def _work(self, prompts: Sequence[Prompt]) -> Work:
        body = self._body
        grammar = self._tool.function.grammar if self._tool is not None else body.grammar
        ends = grammar is not None or (self._simulation.answers_end and not body.ignore_eos)
        return work_of(
            self._simulation,
            str(self._head["id"]),
            body,
            prompts,
            max_tokens=body.max_completion_tokens or body.max_tokens,
            grammar=grammar,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            ends=ends,
        )

    def whole(self, run: Run) -> dict[str, Any]:
        """The answer at once."""
        answer = {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(answer) for answer in run.answers],
            "usage": usage(run),
        }
        if self._body.return_token_ids:
            answer["prompt_token_ids"] = self.work.prompts[0].token_ids
        if self._body.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(self._scores(self._body.prompt_logprobs))
        if run.answers[0].kv_transfer_params is not None:
            answer["kv_transfer_params"] = run.answers[0].kv_transfer_params
        return answer

    def _scores(self, count: int) -> Sequence[Score]:
        return prompt_scores(self._simulation.settings.core.seed, self.work.prompts[0].token_ids, count)

    async def stream(self, run: Run) -> None:
        """The answer as it comes."""
        call, body = self._call, self._body
        greeted: set[int] = set()
        await call.open_stream()
        async for piece in run.pieces():
            if piece.choice not in greeted:
                greeted.add(piece.choice)
                await call.event(self._greeting(piece.choice, run))
            if piece.text or piece.finish or body.return_token_ids or piece.logprobs:
                await call.event(self._chunk(piece, run))
        if body.tells_usage:
            await call.event({**self._head, "object": _CHUNK, "choices": [], "usage": usage(run)})
        await call.close_stream(DONE)

    def _greeting(self, choice: int, run: Run) -> dict[str, Any]:
        delta = self._tool.greeting() if self._tool is not None else {"role": "assistant", "content": ""}
        event = self._event({"index": choice, "delta": delta, "logprobs": None, "finish_reason": None}, run)
        if self._body.return_token_ids:
            event["prompt_token_ids"] = self.work.prompts[0].token_ids
        return event

    def _chunk(self, piece: Piece, run: Run) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": piece.choice,
            "delta": self._tool.delta(piece.text) if self._tool is not None else {"content": piece.text},
            "logprobs": self._logprobs(piece.logprobs),
            "finish_reason": self._finish(piece.finish),
        }
        if piece.finish:
            choice["stop_reason"] = piece.stop_reason
        if self._body.return_token_ids:
            choice["token_ids"] = piece.token_ids
        return self._event(choice, run)

    def _event(self, choice: dict[str, Any], run: Run) -> dict[str, Any]:
        event = {**self._head, "object": _CHUNK, "choices": [choice]}
        if self._body.tells_usage_always:
            event["usage"] = usage(run)
        return event

    def _choice(self, answer: Answer) -> dict[str, Any]:
        text = answer.text
        plain = {"role": "assistant", "content": text, "refusal": None}
        choice: dict[str, Any] = {
            "index": answer.choice,
            "message": plain if self._tool is None else self._tool.message(text),
            "logprobs": self._logprobs(answer.logprobs),
            "finish_reason": self._finish(answer.finish),
            "stop_reason": answer.stop_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = answer.token_ids
        return choice

    def _finish(self, finish: str | None) -> str | None:
        return self._tool.finish if self._tool is not None and finish == "stop" else finish

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        return chat_logprobs(logprobs, self._body.top_logprobs or 0) if self._body.logprobs else None
