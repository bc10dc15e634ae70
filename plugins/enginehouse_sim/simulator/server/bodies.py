"""The parameters that chats and completions share: sampling, structured output, and tools."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.model.grammar import JSON_OBJECT, choice_grammar
from enginehouse_sim.simulator.server.simulation import Simulation
from enginehouse_sim.simulator.server.work import EncodedPrompt, TokenId, Work

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Alternatives = Annotated[int, msgspec.Meta(ge=0, le=20)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class StreamOptions(msgspec.Struct):
    """``stream_options`` of a request."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class JsonSchema(msgspec.Struct):
    """``json_schema`` of a ``response_format``."""

    schema: Any = None


class ResponseFormatParam(msgspec.Struct):
    """``response_format`` of a request."""

    type: str
    json_schema: JsonSchema | None = None

    @property
    def grammar(self) -> str | None:
        """The grammar that it asks for. Raises ``InvalidRequest`` for an unsupported one."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return JSON_OBJECT
        if self.type == "json_schema" and self.json_schema is not None and self.json_schema.schema is not None:
            return schema_text(self.json_schema.schema)
        raise InvalidRequest(
            "A 'response_format' is text, json_object, or json_schema with a schema here", param="response_format"
        )


class StructuredOutputs(msgspec.Struct):
    """``structured_outputs`` of a request, vLLM's."""

    json: Any = None
    json_object: bool | None = None
    choice: list[str] | None = None

    @property
    def grammar(self) -> str:
        """The grammar that they ask for. Raises ``InvalidRequest`` for an unsupported one."""
        if self.json is not None:
            return schema_text(self.json)
        if self.json_object:
            return JSON_OBJECT
        if self.choice is not None:
            return choice_grammar(self.choice)
        raise InvalidRequest("Of 'structured_outputs' only json, json_object and choice are understood here")


class SamplingBody(msgspec.Struct, kw_only=True):
    """The fields that chats and completions share, under OpenAI's and vLLM's names.

    The fields from ``temperature`` to ``seed`` change nothing, but vLLM's limits for them hold.
    """

    model: str
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool = False
    min_tokens: NotNegative | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
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
    response_format: ResponseFormatParam | None = None
    structured_outputs: StructuredOutputs | None = None
    kv_transfer_params: dict[str, Any] | None = None

    @property
    def grammar(self) -> str | None:
        """The grammar of the answer. Raises ``InvalidRequest`` for an unsupported one."""
        grammar = self.response_format.grammar if self.response_format is not None else None
        return self.structured_outputs.grammar if grammar is None and self.structured_outputs is not None else grammar

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
    return Work(
        id=id,
        prompts=prompts,
        max_tokens=max_tokens,
        choices=body.n or 1,
        min_tokens=min_tokens,
        ignore_eos=body.ignore_eos,
        stops=[text for text in stops if text],
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        include_stop=body.include_stop_str_in_output,
        grammar=grammar,
        logprobs=logprobs,
        priority=body.priority,
        lora=lora,
        cache_salt=body.cache_salt,
        kv_transfer_params=body.kv_transfer_params,
        follows=follows,
    )


def schema_text(schema: Any) -> str:
    """A schema as text, whether it was sent as text or as JSON."""
    return schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()


class Function(msgspec.Struct):
    """A function that the model can call; ``parameters`` is a JSON schema."""

    name: str
    parameters: Any = None

    @property
    def grammar(self) -> str:
        """The grammar of the call's arguments."""
        return JSON_OBJECT if self.parameters is None else schema_text(self.parameters)


class Tool(msgspec.Struct):
    """One of a request's ``tools``."""

    function: Function


class FunctionName(msgspec.Struct):
    """The name of a function."""

    name: str


class NamedTool(msgspec.Struct):
    """``tool_choice`` of one function."""

    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class ToolCall:
    """An answer that is a tool call; ``finish`` is its finish reason."""

    def __init__(self, function: Function, finish: str) -> None:
        self.function = function
        self.finish = finish

    def message(self, arguments: str) -> dict[str, Any]:
        """The message of a reply that is not a stream."""
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [self._call(arguments)]}

    def first_delta(self) -> dict[str, Any]:
        return {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **self._call("")}]}

    def delta(self, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}

    def _call(self, arguments: str) -> dict[str, Any]:
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": f"call_{random.getrandbits(96):024x}", "type": "function", "function": function}


def tool_call(tools: Sequence[Tool], choice: ToolChoice | None, seed: Sequence[int]) -> ToolCall | None:
    """The call to generate, or ``None`` for a text: the engine calls a function only if it must.

    ``seed``: the prompt's tokens, which choose a function if any will do. Raises ``InvalidRequest`` if the choice names
    an unknown function, or requires a function where there is none.
    """
    functions = [tool.function for tool in tools]
    if isinstance(choice, NamedTool):
        for function in functions:
            if function.name == choice.function.name:
                return ToolCall(function, "stop")
        raise InvalidRequest(f"'tool_choice' names {choice.function.name!r}, which is none of the tools")
    if choice != "required":
        return None
    if not functions:
        raise InvalidRequest("'tool_choice' is 'required', and there are no tools to choose from")
    return ToolCall(functions[crc32(repr(seed).encode()) % len(functions)], "tool_calls")
