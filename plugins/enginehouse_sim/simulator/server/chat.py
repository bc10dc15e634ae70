"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.domain.outputs import TokenLogprobs
from enginehouse_sim.simulator.model.text import bytes_of, piece_of
from enginehouse_sim.simulator.server.bodies import (
    Alternatives,
    Positive,
    SamplingBody,
    Tool,
    ToolCall,
    ToolChoice,
    tool_call,
    work_of,
)
from enginehouse_sim.simulator.server.http import Call
from enginehouse_sim.simulator.server.reply import Reply, new_id
from enginehouse_sim.simulator.server.runs import Piece, Run, RunAnswer
from enginehouse_sim.simulator.server.simulation import Simulation
from enginehouse_sim.simulator.server.work import ChatMessage, Work, chat_prompt


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
    grammar = tool.function.grammar if tool is not None else body.grammar
    work = work_of(
        simulation,
        new_id("chatcmpl", call),
        body,
        [prompt],
        max_tokens=body.max_completion_tokens or body.max_tokens,
        grammar=grammar,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        ends=grammar is not None or (simulation.answers_end and not body.ignore_eos),
    )
    await _ChatReply(simulation, body, work, tool).send(call)


class _ChatReply(Reply[ChatBody]):
    """Replies with messages of text, or with calls of ``tool``."""

    def __init__(self, simulation: Simulation, body: ChatBody, work: Work, tool: ToolCall | None) -> None:
        head = {"id": work.id, "created": int(time.time()), "model": body.model}
        whole, chunk = ({**head, "object": f"chat.completion{part}"} for part in ("", ".chunk"))
        if body.return_token_ids:
            whole["prompt_token_ids"] = work.prompts[0].token_ids
        super().__init__(simulation, body, work, whole, chunk)
        self._tool = tool

    def _choice(self, answer: RunAnswer) -> dict[str, Any]:
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
        """Each token, and the likeliest tokens at its place."""
        if not self._body.logprobs:
            return None
        top = self._body.top_logprobs or 0
        content = [{**_scored(*some[0]), "top_logprobs": [_scored(*one) for one in some[:top]]} for some in logprobs]
        return {"content": content, "refusal": None}


def _scored(token: int, logprob: float) -> dict[str, Any]:
    return {"token": piece_of(token), "logprob": logprob, "bytes": list(bytes_of(token))}
