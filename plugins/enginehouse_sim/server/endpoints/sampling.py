"""What chats and completions have in common: how to go on from prompts, and how to tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.server.endpoints.structured import (
    ResponseFormat,
    StructuredOutputs,
    grammar_of_format,
    grammar_of_outputs,
    schema_text,
)
from enginehouse_sim.server.openai_parts import Alternatives, Choices, NotNegative, Stop, StreamOptions, stop_strings
from enginehouse_sim.server.prompts import TokenId
from enginehouse_sim.server.simulation import Simulation
from enginehouse_sim.server.work import Prompt, Work


class SamplingBody(msgspec.Struct, kw_only=True):
    """What is read of both; the names are OpenAI's and vLLM's."""

    model: str
    n: Choices | None = None
    stop: Stop = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    min_tokens: NotNegative | None = None
    ignore_eos: bool = False
    priority: int = 0
    cache_salt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    prompt_logprobs: Alternatives | None = None
    response_format: ResponseFormat | None = None
    guided_json: Any = None
    structured_outputs: StructuredOutputs | None = None
    kv_transfer_params: dict[str, Any] | None = None

    @property
    def grammar(self) -> str | None:
        """What the answer has to follow. Raises ``InvalidRequest`` for what is not understood here."""
        if self.guided_json is not None:
            return schema_text(self.guided_json)
        return grammar_of_format(self.response_format) or grammar_of_outputs(self.structured_outputs)

    @property
    def tells_usage(self) -> bool:
        """Whether the last event of a stream is the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def tells_usage_always(self) -> bool:
        """Whether every event of a stream has the usage so far."""
        return self.tells_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats


def work_of(
    simulation: Simulation,
    id: str,
    body: SamplingBody,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int | None,
    grammar: str | None,
    logprobs: int | None,
    ends: bool = False,
) -> Work:
    """What the request asks of the engine; ``ends`` tells that answers end by themselves.

    Raises ``ModelNotFound``, and ``InvalidRequest`` when it contradicts itself or does not fit into the context.
    """
    lora = simulation.lora(body.model)
    max_tokens = simulation.max_tokens(prompts, max_tokens, ends=ends)
    min_tokens = body.min_tokens or 0
    if min_tokens > max_tokens:
        raise InvalidRequest(f"min_tokens is {min_tokens}, more than max_tokens, which is {max_tokens}")
    return Work(
        id=id,
        prompts=prompts,
        max_tokens=max_tokens,
        choices=body.n or 1,
        min_tokens=min_tokens,
        ignore_eos=body.ignore_eos,
        stops=stop_strings(body.stop),
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        include_stop=body.include_stop_str_in_output,
        grammar=grammar,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs is not None,
        priority=body.priority,
        lora=lora,
        cache_salt=body.cache_salt,
        kv_transfer_params=body.kv_transfer_params,
    )
