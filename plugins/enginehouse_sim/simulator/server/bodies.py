"""What requests ask for: prompts as tokens, sampling, structured output, tools, and the work of the engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.domain.asked import IMAGE_TOKENS, EngineCoreRequest, MultiModalInput
from enginehouse_sim.simulator.model.grammar import JSON_OBJECT, choice_grammar
from enginehouse_sim.simulator.model.text import count_tokens, encode


class EncodedPrompt(msgspec.Struct, frozen=True):
    """The tokens to continue, and the images among them."""

    token_ids: list[int]
    mm_inputs: Sequence[MultiModalInput] = ()


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """``choices`` answers to each prompt. Choice ``c`` of prompt ``p`` has the number ``p * choices + c``.

    ``asked``: what the engine is asked for each answer, but for the prompt. ``stops``: strings that end an answer;
    ``include_stop``: show the string or token that ended it. ``follows``: the id of a request that has migrated here;
    the answer is the rest of its answer after the only prompt, and no request begins.
    """

    asked: EngineCoreRequest
    prompts: Sequence[EncodedPrompt]
    choices: int = 1
    stops: Sequence[str] = ()
    include_stop: bool = False
    follows: str | None = None

    @property
    def id(self) -> str:
        return self.asked.request_id

    @property
    def size(self) -> int:
        return len(self.prompts) * self.choices

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt.token_ids) for prompt in self.prompts)

    def request(self, number: int, request_id: str) -> EngineCoreRequest:
        at, choice = divmod(number, self.choices)
        prompt = self.prompts[at]
        given = {"request_id": request_id, "prompt_token_ids": prompt.token_ids, "mm_inputs": prompt.mm_inputs}
        return msgspec.structs.replace(self.asked, choice=choice, **given)


_IMAGE = "\N{OBJECT REPLACEMENT CHARACTER}" * IMAGE_TOKENS

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
PromptInput = str | list[str | TokenId | list[TokenId]]
"""A text, several texts, token ids, or several lists of token ids."""


class ImageUrl(msgspec.Struct):
    """The URL of an image, or the image itself as a ``data:`` URL."""

    url: str


class ContentPart(msgspec.Struct):
    """One part of a message's content. The ``type`` stands for a part that is neither text nor image."""

    type: str = "text"
    text: str | None = None
    image_url: str | ImageUrl | None = None


class ChatMessage(msgspec.Struct):
    """One chat message, or one item of a Responses input."""

    role: str = "user"
    content: str | list[ContentPart] | None = None
    tool_calls: list[Any] | None = None


def chat_prompt(
    messages: Sequence[ChatMessage], *, continue_final: bool = False, add_generation_prompt: bool = True
) -> EncodedPrompt:
    """A conversation as a prompt for the assistant's answer.

    With ``continue_final``, the last message stays open, and the answer continues it. Else ``add_generation_prompt``
    begins the assistant's message.
    """
    texts: list[str] = []
    images: list[tuple[int, str]] = []
    for message in messages:
        texts.append(f"{message.role}\n")
        content = message.content
        for part in content if isinstance(content, list) else [ContentPart(text=content or "")]:
            if part.image_url is not None:
                url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
                images.append((len(texts), blake2b(url.encode(), digest_size=8).hexdigest()))
                texts.append(_IMAGE)
            else:
                texts.append(f"<|{part.type}|>" if part.text is None else part.text)
        if message.tool_calls:
            texts.append(msgspec.json.encode(message.tool_calls).decode())
        texts.append("\n")
    if continue_final and messages:
        texts.pop()
    elif add_generation_prompt:
        texts.append("assistant\n")
    inputs = [
        MultiModalInput(identifier, count_tokens("".join(texts[:place])), IMAGE_TOKENS) for place, identifier in images
    ]
    return EncodedPrompt(encode("".join(texts)), inputs)


def prompts_of(prompt: PromptInput) -> list[EncodedPrompt]:
    """The prompts of a completion or an embedding. Raises ``InvalidRequest`` for an empty or a mixed list."""
    if isinstance(prompt, str):
        return [EncodedPrompt(encode(prompt))]
    if all(isinstance(one, str) for one in prompt) and prompt:
        return [EncodedPrompt(encode(one)) for one in prompt if isinstance(one, str)]
    if all(isinstance(one, list) for one in prompt) and prompt:
        return [EncodedPrompt(one) for one in prompt if isinstance(one, list)]
    ids = [one for one in prompt if isinstance(one, int)]
    if not ids or len(ids) != len(prompt):
        raise InvalidRequest("A prompt is a text, a list of token ids, or a list of either, and not empty")
    return [EncodedPrompt(ids)]


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
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def includes_usage_always(self) -> bool:
        """Whether every event of a stream has the usage so far."""
        return self.includes_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats


def schema_text(schema: Any) -> str:
    """A schema as text, whether it was sent as text or as JSON."""
    return schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()


class Function(msgspec.Struct):
    """A function that the model can call; ``parameters`` is a JSON schema."""

    name: str
    parameters: Any = None

    @property
    def grammar(self) -> str:
        return JSON_OBJECT if self.parameters is None else schema_text(self.parameters)


class Tool(msgspec.Struct):
    """One of a request's ``tools``."""

    function: Function


class NamedTool(msgspec.Struct):
    """``tool_choice`` of one function."""

    function: Function


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class ToolCall:
    """An answer that is a tool call; ``finish`` is its finish reason."""

    def __init__(self, function: Function, finish: str) -> None:
        self.function = function
        self.finish = finish

    def message(self, arguments: str) -> dict[str, Any]:
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
