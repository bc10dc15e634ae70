"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.domain.outputs import TokenLogprobs
from enginehouse_sim.simulator.grammar.grammar import JSON_OBJECT
from enginehouse_sim.simulator.server.endpoints.common import Alternatives, Positive, new_id
from enginehouse_sim.simulator.server.endpoints.logprobs import chat_logprobs, prompt_logprobs
from enginehouse_sim.simulator.server.endpoints.prompted_schema import prompted_schema
from enginehouse_sim.simulator.server.endpoints.reply import Reply
from enginehouse_sim.simulator.server.endpoints.sampling import SamplingBody, work_of
from enginehouse_sim.simulator.server.endpoints.tools import Tool, ToolCall, ToolChoice, tool_call
from enginehouse_sim.simulator.server.generation.answer import Answer, Piece
from enginehouse_sim.simulator.server.generation.prompt_scores import prompt_scores
from enginehouse_sim.simulator.server.generation.prompts import ChatMessage, chat_prompt
from enginehouse_sim.simulator.server.generation.run import Run
from enginehouse_sim.simulator.server.generation.work import EncodedPrompt, Work
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


class ChatBody(SamplingBody, kw_only=True):
    """The fields that the endpoint reads. It ignores all others."""

    messages: list[ChatMessage]
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
    if body.continue_final_message and body.add_generation_prompt:
        raise InvalidRequest("'continue_final_message' and 'add_generation_prompt' exclude each other")
    prompt = chat_prompt(
        body.messages,
        continue_final=body.continue_final_message,
        add_generation_prompt=body.add_generation_prompt is not False,
    )
    tool = tool_call(body.tools or (), body.tool_choice, prompt.token_ids)
    work = _work(simulation, new_id("chatcmpl", call), body, prompt, tool)
    await _ChatReply(simulation, body, work, tool).send(call)


def _work(simulation: Simulation, id: str, body: ChatBody, prompt: EncodedPrompt, tool: ToolCall | None) -> Work:
    grammar = tool.function.grammar if tool is not None else body.grammar
    if tool is None and grammar in (None, JSON_OBJECT):
        grammar = prompted_schema(body.messages) or grammar
    return work_of(
        simulation,
        id,
        body,
        [prompt],
        max_tokens=body.max_completion_tokens or body.max_tokens,
        grammar=grammar,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        ends=grammar is not None or (simulation.answers_end and not body.ignore_eos),
    )


class _ChatReply(Reply[ChatBody]):
    """Replies with messages of text, or with calls of ``tool``."""

    def __init__(self, simulation: Simulation, body: ChatBody, work: Work, tool: ToolCall | None) -> None:
        head = {"id": work.id, "created": int(time.time()), "model": body.model}
        super().__init__(
            simulation,
            body,
            work,
            {**head, "object": "chat.completion"},
            {**head, "object": "chat.completion.chunk"},
        )
        self._tool = tool

    def _extras(self) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        prompt, count = self._work.prompts[0].token_ids, self._body.prompt_logprobs
        if self._body.return_token_ids:
            extras["prompt_token_ids"] = prompt
        if count is not None:
            extras["prompt_logprobs"] = prompt_logprobs(prompt_scores(self._seed, prompt, count))
        return extras

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

    def _events(self, piece: Piece, first: bool, run: Run) -> Iterator[dict[str, Any]]:
        if first:
            yield self._first_event(piece.choice, run)
        if self._is_visible(piece):
            choice = {
                "index": piece.choice,
                "delta": self._tool.delta(piece.text) if self._tool is not None else {"content": piece.text},
                "logprobs": self._logprobs(piece.logprobs),
                "finish_reason": self._finish(piece.finish),
            }
            yield self._event(self._with_ending(choice, piece), run)

    def _first_event(self, choice: int, run: Run) -> dict[str, Any]:
        delta = self._tool.first_delta() if self._tool is not None else {"role": "assistant", "content": ""}
        event = self._event({"index": choice, "delta": delta, "logprobs": None, "finish_reason": None}, run)
        if self._body.return_token_ids:
            event["prompt_token_ids"] = self._work.prompts[0].token_ids
        return event

    def _finish(self, finish: str | None) -> str | None:
        return self._tool.finish if self._tool is not None and finish == "stop" else finish

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        return chat_logprobs(logprobs, self._body.top_logprobs or 0) if self._body.logprobs else None
