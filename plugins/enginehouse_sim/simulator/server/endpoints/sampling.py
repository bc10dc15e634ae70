"""Parameters that chats and completions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.grammar.grammar import choice_grammar, regex_grammar
from enginehouse_sim.simulator.server.endpoints.common import (
    Alternatives,
    Choices,
    NotNegative,
    Stop,
    StreamOptions,
    stop_strings,
)
from enginehouse_sim.simulator.server.endpoints.structured import (
    ResponseFormatParam,
    StructuredOutputs,
    grammar_of_format,
    grammar_of_outputs,
    schema_text,
)
from enginehouse_sim.simulator.server.generation.prompts import TokenId
from enginehouse_sim.simulator.server.generation.work import EncodedPrompt, Work
from enginehouse_sim.simulator.server.simulation import Simulation

TopP = Annotated[float, msgspec.Meta(gt=0, le=1)]
NotNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class SamplingBody(msgspec.Struct, kw_only=True):
    """The fields that chats and completions share, under OpenAI's and vLLM's names.

    The fields from ``temperature`` to ``seed`` change nothing, but vLLM's limits for them hold.
    """

    model: str
    n: Choices | None = None
    stop: Stop = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    min_tokens: NotNegative | None = None
    temperature: NotNegativeFloat | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    ignore_eos: bool = False
    priority: int = 0
    cache_salt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    prompt_logprobs: Alternatives | None = None
    response_format: ResponseFormatParam | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    structured_outputs: StructuredOutputs | None = None
    kv_transfer_params: dict[str, Any] | None = None

    @property
    def grammar(self) -> str | None:
        """The grammar of the answer. Raises ``InvalidRequest`` for an unsupported one."""
        if self.guided_json is not None:
            return schema_text(self.guided_json)
        if self.guided_regex is not None:
            return regex_grammar(self.guided_regex)
        if self.guided_choice is not None:
            return choice_grammar(self.guided_choice)
        return grammar_of_format(self.response_format) or grammar_of_outputs(self.structured_outputs)

    @property
    def includes_usage(self) -> bool:
        """Whether the last event of a stream is the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def includes_usage_always(self) -> bool:
        """Whether every event of a stream has the usage so far."""
        return self.includes_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats


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
) -> Work:
    """The work that a request asks for.

    ``ends``: the answers end by themselves, so their default length is all the room in the context.

    Raises ``ModelNotFound``, and ``InvalidRequest`` for contradictions or a request longer than the context.
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
