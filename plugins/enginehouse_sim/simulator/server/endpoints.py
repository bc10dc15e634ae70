"""The endpoints for chats, completions, embeddings and tokens."""

from __future__ import annotations

import math
import random
import struct
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.model.text import EOS, bytes_of, encode, piece_of
from enginehouse_sim.simulator.server.bodies import (
    Alternatives,
    ChatMessage,
    EncodedPrompt,
    Positive,
    PromptInput,
    SamplingBody,
    Tool,
    ToolCall,
    ToolChoice,
    Work,
    chat_prompt,
    prompts_of,
    tool_call,
)
from enginehouse_sim.simulator.server.http import DONE, Call
from enginehouse_sim.simulator.server.runs import Piece, Run, RunAnswer
from enginehouse_sim.simulator.server.simulation import Simulation

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


def work_of(
    simulation: Simulation,
    id: str,
    body: SamplingBody,
    prompts: Sequence[EncodedPrompt],
    *,
    max_tokens: int | None,
    grammar: str | None,
    logprobs: int | None,
    ends: bool = False,
    follows: str | None = None,
) -> Work:
    """The work that a request asks for.

    ``ends``: the answers end by themselves, so their default length is all the room in the context. Raises
    ``ModelNotFound``, and ``InvalidRequest`` for contradictions or a request longer than the context.
    """
    lora = simulation.lora(body.model)
    max_tokens = simulation.max_tokens(prompts, max_tokens, ends=ends)
    min_tokens = body.min_tokens or 0
    if min_tokens > max_tokens:
        raise InvalidRequest(f"min_tokens is {min_tokens}, more than max_tokens, which is {max_tokens}")
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    asked = EngineCoreRequest(
        request_id=id,
        prompt_token_ids=[],
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        logprobs=logprobs,
        priority=body.priority,
        eos_token_id=EOS,
        ignore_eos=body.ignore_eos,
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        lora=lora,
        cache_salt=body.cache_salt,
        structured_output=grammar,
        kv_transfer_params=body.kv_transfer_params,
    )
    return Work(
        asked=asked,
        prompts=prompts,
        choices=body.n or 1,
        stops=[text for text in stops if text],
        include_stop=body.include_stop_str_in_output,
        follows=follows,
    )


class Reply(ABC, Generic[BodyT]):
    """The reply to one request. ``head`` begins the whole reply, ``chunk_head`` every event of a stream.

    ``_first_fields``: more fields of the first event of each answer.
    """

    def __init__(
        self, simulation: Simulation, body: BodyT, work: Work, head: dict[str, Any], chunk_head: dict[str, Any]
    ) -> None:
        self._body = body
        self._work = work
        self._simulation = simulation
        self._head = head
        self._chunk_head = chunk_head
        self._first_fields: dict[str, Any] = {}

    async def send(self, call: Call) -> None:
        with self._simulation.run(self._work, streams=bool(self._body.stream)) as run:
            if self._body.stream:
                await self._stream(run, call)
            else:
                answers = await run.finished()
                reply = {**self._head, "choices": [self._whole(answer) for answer in answers], "usage": usage(run)}
                if answers[0].kv_transfer_params is not None:
                    reply["kv_transfer_params"] = answers[0].kv_transfer_params
                await call.json(reply)

    @abstractmethod
    def _whole(self, answer: RunAnswer) -> dict[str, Any]:
        """A finished answer, as an element of ``choices``."""

    @abstractmethod
    def _chunks(self, piece: Piece, first: bool) -> Iterator[dict[str, Any]]:
        """The elements of ``choices`` for a piece of an answer. ``first``: it is the answer's first piece."""

    @abstractmethod
    def _logprobs(self, part: RunAnswer | Piece) -> dict[str, Any] | None:
        """The log-probabilities of a part, if the request asks for them."""

    def _finish(self, finish: str | None) -> str | None:
        return finish

    def _choice(self, part: RunAnswer | Piece, **content: Any) -> dict[str, Any]:
        finish = self._finish(part.finish)
        choice = {"index": part.choice, **content, "logprobs": self._logprobs(part), "finish_reason": finish}
        if part.finish:
            choice["stop_reason"] = part.stop_reason
        if self._body.return_token_ids:
            choice["token_ids"] = part.token_ids
        return choice

    async def _stream(self, run: Run, call: Call) -> None:
        body, started = self._body, set[int]()
        await call.open_stream()
        async for piece in run.pieces():
            for choice in self._chunks(piece, piece.choice not in started):
                event = {**self._chunk_head, "choices": [choice]}
                if piece.choice not in started:
                    event |= self._first_fields
                if body.includes_usage_always:
                    event["usage"] = usage(run)
                await call.event(event)
                started.add(piece.choice)
            started.add(piece.choice)
        if body.includes_usage:
            await call.event({**self._chunk_head, "choices": [], "usage": usage(run)})
        await call.close_stream(DONE)


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
        prompt = {"prompt_token_ids": work.prompts[0].token_ids} if body.return_token_ids else {}
        whole, chunk = ({**head, "object": f"chat.completion{part}"} for part in ("", ".chunk"))
        super().__init__(simulation, body, work, {**whole, **prompt}, chunk)
        self._first_fields = prompt
        self._tool = tool

    def _whole(self, answer: RunAnswer) -> dict[str, Any]:
        plain = {"role": "assistant", "content": answer.text, "refusal": None}
        return self._choice(answer, message=plain if self._tool is None else self._tool.message(answer.text))

    def _chunks(self, piece: Piece, first: bool) -> Iterator[dict[str, Any]]:
        if first:
            delta = self._tool.first_delta() if self._tool is not None else {"role": "assistant", "content": ""}
            yield {"index": piece.choice, "delta": delta, "logprobs": None, "finish_reason": None}
        if piece.text or piece.finish or self._body.return_token_ids or piece.logprobs:
            delta = self._tool.delta(piece.text) if self._tool is not None else {"content": piece.text}
            yield self._choice(piece, delta=delta)

    def _finish(self, finish: str | None) -> str | None:
        return self._tool.finish if self._tool is not None and finish == "stop" else finish

    def _logprobs(self, part: RunAnswer | Piece) -> dict[str, Any] | None:
        """Each token, and the likeliest tokens at its place."""
        if not self._body.logprobs:
            return None
        top = self._body.top_logprobs or 0
        content = [
            {**_scored(*some[0]), "top_logprobs": [_scored(*one) for one in some[:top]]} for some in part.logprobs
        ]
        return {"content": content, "refusal": None}


def _scored(token: int, logprob: float) -> dict[str, Any]:
    return {"token": piece_of(token), "logprob": logprob, "bytes": list(bytes_of(token))}


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

    def _whole(self, answer: RunAnswer) -> dict[str, Any]:
        choice = self._choice(answer, text=answer.text)
        if self._body.return_token_ids:
            choice["prompt_token_ids"] = self._prompt(answer.choice)
        return choice

    def _chunks(self, piece: Piece, first: bool) -> Iterator[dict[str, Any]]:
        if piece.text or piece.finish or self._body.return_token_ids or piece.logprobs:
            choice = self._choice(piece, text=piece.text)
            self._shown[piece.choice] += len(piece.text)
            if self._body.return_token_ids and first:
                choice["prompt_token_ids"] = self._prompt(piece.choice)
            yield choice

    def _prompt(self, choice: int) -> Sequence[int]:
        return self._work.prompts[choice // self._work.choices].token_ids

    def _logprobs(self, part: RunAnswer | Piece) -> dict[str, Any] | None:
        """The tokens, their places in the text, and the likeliest tokens there."""
        top = self._body.logprobs
        if top is None:
            return None
        texts, offset = [piece_of(token) for token in part.token_ids], self._shown[part.choice]
        likely = [alternatives[: max(1, top)] for alternatives in part.logprobs]
        return {
            "text_offset": [offset + sum(map(len, texts[:at])) for at in range(len(texts))],
            "token_logprobs": [alternatives[0][1] for alternatives in part.logprobs],
            "tokens": texts,
            "top_logprobs": [{piece_of(token): logprob for token, logprob in some} for some in likely],
        }


class EmbeddingBody(msgspec.Struct):
    """The fields that the endpoint reads. It ignores all others."""

    model: str
    input: PromptInput
    dimensions: Positive | None = None
    encoding_format: Literal["float", "base64"] = "float"


async def embeddings(simulation: Simulation, call: Call) -> None:
    """Answer a vector of length 1 for each text. It depends only on the seed and the text."""
    body = call.decode(EmbeddingBody)
    prompts, lora = prompts_of(body.input), simulation.lora(body.model)
    simulation.max_tokens(prompts, 0)
    id = new_id("embd", call)
    asked = EngineCoreRequest(request_id=id, prompt_token_ids=[], max_tokens=0, lora=lora, pooling=True)
    work = Work(asked=asked, prompts=prompts)
    with simulation.run(work) as run:
        answers = await run.finished()
    data = [
        {"object": "embedding", "index": answer.choice, "embedding": _encoded(answer.pooled, body)}
        for answer in answers
    ]
    counted = {"prompt_tokens": work.prompt_tokens, "total_tokens": work.prompt_tokens}
    await call.json({"id": work.id, "object": "list", "data": data, "model": body.model, "usage": counted})


def _encoded(vector: Sequence[float], body: EmbeddingBody) -> Any:
    if body.dimensions is not None:
        if body.dimensions > len(vector):
            raise InvalidRequest(f"Embeddings have {len(vector)} dimensions here: ask for fewer")
        length = math.hypot(*vector[: body.dimensions])
        vector = [value / length for value in vector[: body.dimensions]]
    if body.encoding_format == "base64":
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector


class TokenizeBody(msgspec.Struct):
    """The fields that the endpoint reads: ``prompt``, or ``messages``."""

    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool = True


async def tokenize(simulation: Simulation, call: Call) -> None:
    """Cut a text or a conversation into tokens."""
    body = call.decode(TokenizeBody)
    if body.messages is not None:
        token_ids = chat_prompt(
            body.messages, continue_final=body.continue_final_message, add_generation_prompt=body.add_generation_prompt
        ).token_ids
    elif body.prompt is not None:
        token_ids = encode(body.prompt)
    else:
        raise InvalidRequest("Send 'prompt' or 'messages'")
    await call.json({"count": len(token_ids), "max_model_len": simulation.settings.context_length, "tokens": token_ids})
