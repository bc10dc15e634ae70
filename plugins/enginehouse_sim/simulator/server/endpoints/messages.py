"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's protocol, with texts and tool calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from enginehouse import InvalidRequest, RequestError
from enginehouse_sim.simulator.server.endpoints.common import Positive, new_id, usage
from enginehouse_sim.simulator.server.endpoints.tools import (
    Function,
    FunctionName,
    NamedTool,
    Tool,
    ToolCall,
    ToolChoice,
    new_call_id,
    tool_call,
)
from enginehouse_sim.simulator.server.generation.prompts import ChatMessage, ContentPart, chat_prompt
from enginehouse_sim.simulator.server.generation.run import Run
from enginehouse_sim.simulator.server.generation.work import EncodedPrompt, Work
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_ERROR_TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
_STOP_REASONS = {"length": "max_tokens", "abort": "end_turn", "stop": "end_turn"}


class ImageSource(msgspec.Struct):
    """The source of an image: a URL, or the image itself in base64."""

    type: Literal["base64", "url"]
    media_type: str = "image/png"
    data: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """The URL, or a ``data:`` URL."""
        return self.url if self.type == "url" else f"data:{self.media_type};base64,{self.data}"


class Block(msgspec.Struct):
    """One block of a message's content. The JSON of a block that is neither text nor image counts as text."""

    type: str
    text: str | None = None
    source: ImageSource | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None

    @property
    def part(self) -> ContentPart:
        if self.type == "image":
            if self.source is None:
                raise InvalidRequest("An image has a 'source'", param="messages")
            return ContentPart(type="image_url", image_url=self.source.address)
        if self.text is not None:
            return ContentPart(text=self.text)
        told = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return ContentPart(text=msgspec.json.encode(told).decode())


Content = str | list[Block]


class AnthropicMessage(msgspec.Struct):
    """One turn of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content


class CountBody(msgspec.Struct, kw_only=True):
    """The fields that the endpoint reads. It ignores all others."""

    model: str
    messages: list[AnthropicMessage]
    system: Content | None = None

    @property
    def prompt(self) -> EncodedPrompt:
        """The conversation as a prompt. The answer continues a last turn of the assistant.

        Raises ``InvalidRequest`` for an empty conversation, and for an image without a source.
        """
        if not self.messages:
            raise InvalidRequest("There are no 'messages' to answer", param="messages")
        messages = [ChatMessage(role=one.role, content=_parts(one.content)) for one in self.messages]
        if self.system:
            messages.insert(0, ChatMessage(role="system", content=_parts(self.system)))
        return chat_prompt(messages, continue_final=messages[-1].role == "assistant")


class MessagesTool(msgspec.Struct):
    """A tool; ``input_schema`` is a JSON schema."""

    name: str
    input_schema: Any = None


class MessagesToolChoice(msgspec.Struct):
    """Whether a tool must be called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str = ""

    @property
    def as_openai(self) -> ToolChoice:
        if self.type == "tool":
            return NamedTool(FunctionName(self.name))
        return "required" if self.type == "any" else "auto"


class MessagesBody(CountBody, kw_only=True):
    """The fields that the endpoint reads. It ignores all others.

    ``temperature``, ``top_p`` and ``top_k`` change nothing.
    """

    max_tokens: Positive
    stop_sequences: list[str] = []
    stream: bool = False
    temperature: Share | None = None
    top_p: Share | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = None
    tools: list[MessagesTool] = []
    tool_choice: MessagesToolChoice | None = None

    def tool_call(self, prompt: EncodedPrompt) -> ToolCall | None:
        """The call to answer with, if there must be one. Raises ``InvalidRequest``."""
        functions = [Tool(Function(tool.name, tool.input_schema)) for tool in self.tools]
        choice = self.tool_choice.as_openai if self.tool_choice is not None else None
        return tool_call(functions, choice, prompt.token_ids)


async def messages(simulation: Simulation, call: Call) -> None:
    """Answer a conversation."""
    body = call.decode(MessagesBody)
    prompts = [body.prompt]
    tool = body.tool_call(prompts[0])
    work = Work(
        id=new_id("msg", call),
        prompts=prompts,
        max_tokens=simulation.max_tokens(prompts, body.max_tokens),
        stops=[text for text in body.stop_sequences if text],
        lora=simulation.lora(body.model),
        grammar=tool.function.grammar if tool is not None else None,
    )
    with simulation.generator.run(work, streams=body.stream) as run:
        if body.stream:
            await _stream(run, call, body.model, tool)
        else:
            await run.finished()
            await call.json({**_message(run, body.model, _content(run.answers[0].text, tool)), **_ending(run, tool)})


async def count_tokens(simulation: Simulation, call: Call) -> None:
    """Count the tokens of a conversation."""
    body = call.decode(CountBody)
    simulation.lora(body.model)
    await call.json({"input_tokens": len(body.prompt.token_ids)})


def anthropic_error(error: RequestError) -> dict[str, Any]:
    """An error in Anthropic's form."""
    return {
        "type": "error",
        "error": {"type": _ERROR_TYPES.get(error.status, "api_error"), "message": error.message},
    }


async def _stream(run: Run, call: Call, model: str, tool: ToolCall | None) -> None:
    async def send(type: str, **fields: Any) -> None:
        await call.event({"type": type, **fields}, type)

    await call.open_stream()
    await send("message_start", message=_message(run, model, []))
    block = {"type": "text", "text": ""} if tool is None else _tool_use(tool, {})
    await send("content_block_start", index=0, content_block=block)
    kind, field = ("text_delta", "text") if tool is None else ("input_json_delta", "partial_json")
    async for piece in run.pieces():
        if piece.text:
            await send("content_block_delta", index=0, delta={"type": kind, field: piece.text})
    await send("content_block_stop", index=0)
    ending = _ending(run, tool)
    await send("message_delta", delta=ending, usage={"output_tokens": run.completion_tokens})
    await send("message_stop")
    await call.close_stream()


def _content(text: str, tool: ToolCall | None) -> list[dict[str, Any]]:
    """The blocks of a whole answer. The arguments of a call that was cut off are not JSON, so it has none."""
    if tool is None:
        return [{"type": "text", "text": text}] if text else []
    try:
        return [_tool_use(tool, msgspec.json.decode(text))]
    except msgspec.DecodeError:
        return [_tool_use(tool, {})]


def _tool_use(tool: ToolCall, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": new_call_id("toolu"), "name": tool.function.name, "input": given}


def _message(run: Run, model: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    counted = usage(run)
    return {
        "id": run.work.id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": counted["prompt_tokens"] - run.cached_tokens,
            "cache_read_input_tokens": run.cached_tokens,
            "output_tokens": counted["completion_tokens"],
        },
    }


def _ending(run: Run, tool: ToolCall | None) -> dict[str, Any]:
    [answer] = run.answers
    if tool is not None and answer.finish == "stop":
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if isinstance(answer.stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    return {"stop_reason": _STOP_REASONS[answer.finish or "stop"], "stop_sequence": None}


def _parts(content: Content) -> str | list[ContentPart]:
    return content if isinstance(content, str) else [block.part for block in content]
