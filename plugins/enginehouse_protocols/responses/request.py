"""A request for a response, as one for a chat."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from enginehouse import InvalidRequest
from enginehouse_protocols.chats import (
    Effort,
    add_message,
    effort_fields,
    function_tool,
    image_part,
    joined,
    text_part,
    thoughts,
    tool_call,
)
from enginehouse_protocols.fields import ItemCount, invalid, json_text, parsed, put, raw_text

_log = logging.getLogger(__name__)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Item = msgspec.Raw
"""An item of a conversation, as the client sent it."""
_NOTHING: Final = msgspec.Raw(b"null")
_ROLES: Final = {"developer": "system"}
_OPENAIS: Final = (
    "web_search",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
    "computer",
    "tool_search",
)
"""The beginnings of the types of tools that OpenAI runs."""
_MODELS_OWN: Final = ("local_shell", "shell", "apply_patch")
"""Tools that the client runs, but of which only OpenAI's models know how they are called."""
_LEFT_OUT: Final = frozenset({"namespace"})
"""Groups of the client's own tools, which Codex offers besides others: no chat can name them, so none is called."""
_TEXTS: Final = ("input_text", "output_text", "text")
_REFERENCES: Final = frozenset({"item_reference"})
"""Items that stand for others, which only OpenAI has."""
_INPUT = "input"


class Part(msgspec.Struct):
    """A part of a message; each type has some of these fields."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: msgspec.Raw = _NOTHING
    input_audio: Any = None


class _Item(msgspec.Struct):
    """What an item is. Without a type, it is a message."""

    type: str | None = None


class _Message(msgspec.Struct):
    role: str | None = "user"
    content: str | list[Part] | None = None


class _Call(msgspec.Struct):
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    input: str | None = None


class _Output(msgspec.Struct):
    call_id: str | None = None
    output: msgspec.Raw = _NOTHING


class _Reasoning(msgspec.Struct):
    content: list[Part] | None = None


class Tool(msgspec.Struct):
    """A tool of the client's, or one that OpenAI would run."""

    type: str = "function"
    name: str | None = None
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None
    format: Any = None


class _MoreTools(msgspec.Struct):
    tools: list[Tool] | None = None


class TextFormat(msgspec.Struct):
    """The form of the text."""

    type: str = "text"
    name: str = "answer"
    schema: Any = None
    strict: bool | None = None


class TextSettings(msgspec.Struct):
    """How the text is."""

    format: TextFormat | None = None


class Reasoning(msgspec.Struct):
    """How much the model thinks."""

    effort: Effort | None = None


class ResponsesBody(msgspec.Struct):
    """The fields of a request that have a meaning in a chat."""

    model: str
    input: str | list[Item] | None = None
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: TextSettings | None = None
    reasoning: Reasoning | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    conversation: Any = None
    background: bool | None = None
    prompt: Any = None
    prompt_cache_key: str | None = None
    service_tier: Any = None

    @property
    def items(self) -> Sequence[Item]:
        """What it adds to the conversation."""
        if isinstance(self.input, str):
            return [Item(msgspec.json.encode({"role": "user", "content": self.input}))]
        return self.input or []

    @property
    def tools_as_sent(self) -> list[dict[str, Any]]:
        """The tools as the response repeats them."""
        return [_sent(tool) for tool in self.tools or ()]


def _sent(tool: Tool) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": tool.type}
    if tool.type == "function":
        return fields | {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": tool.strict,
        }
    put(fields, name=tool.name, description=tool.description, format=tool.format)
    return fields


class AskedChat(NamedTuple):
    """The fields of a chat. ``custom``: the names of its functions that stand for tools which take a text."""

    fields: dict[str, Any]
    custom: frozenset[str]


def as_chat(body: ResponsesBody, items: Sequence[Item]) -> AskedChat:
    """The chat about the conversation ``items``.

    Raises ``InvalidRequest`` for what no chat can say, ``BodyTooLarge`` for too many items.
    """
    _check(body)
    conversation = _Conversation(body.instructions)
    for item in items:
        conversation.take(item)
    messages = conversation.end()
    fields: dict[str, Any] = {"model": body.model, "messages": messages, "stream": bool(body.stream)}
    put(
        fields,
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        user=body.user,
        prompt_cache_key=body.prompt_cache_key,
        response_format=_format(body.text.format if body.text else None),
    )
    fields |= effort_fields(body.reasoning.effort if body.reasoning else None)
    declared = [*(body.tools or ()), *conversation.tools]
    conversation.count.add(len(declared))
    tools = {tool.name or "": tool for tool in declared if _offered(tool, body.tool_choice)}
    choice = _choice(body.tool_choice, tools)
    if tools:
        fields["tools"] = [_tool(tool) for tool in tools.values()]
        put(fields, tool_choice=choice, parallel_tool_calls=body.parallel_tool_calls)
    return AskedChat(fields, frozenset(name for name, tool in tools.items() if tool.type == "custom"))


def _check(body: ResponsesBody) -> None:
    if body.conversation is not None:
        raise InvalidRequest("The gateway keeps no conversations: send all of it in 'input'", param="conversation")
    if body.background:
        raise InvalidRequest("The gateway runs nothing in the background: leave 'background' out", param="background")
    if isinstance(body.prompt, dict):
        raise InvalidRequest("Only OpenAI has the templates of 'prompt': send the text in 'input'", param="prompt")


class _Conversation:
    """The messages of a chat, as the items of a conversation become them.

    The calls of one turn are one message in a chat, with the text beside them and what the model thought before: so the
    engine once wrote it. A tool's message has only text, so the images of results follow in a message of the user.
    """

    def __init__(self, instructions: str | None) -> None:
        self.count = ItemCount()
        self.tools: list[Tool] = []
        self._messages: list[dict[str, Any]] = []
        self._turn: dict[str, Any] | None = None
        """The message of the assistant's that may go on."""
        self._images: list[dict[str, Any]] = []
        self._thought = ""
        if instructions:
            self._messages.append({"role": "system", "content": instructions})

    def take(self, item: Item) -> None:
        self.count.add(1)
        type = _read(item, _Item).type or "message"
        if type in ("function_call", "custom_tool_call"):
            call = _read(item, _Call)
            custom = type == "custom_tool_call"
            arguments = arguments_of(call.input or "") if custom else _object_text(json_text(call.arguments or ""))
            calls = self._said(None).setdefault("tool_calls", [])
            calls.append(tool_call(call.call_id or "", call.name or "", arguments))
        elif type in ("function_call_output", "custom_tool_call_output"):
            self._end_turn()
            self._add_result(_read(item, _Output))
        elif type == "message":
            self._add_message(_read(item, _Message))
        elif type == "reasoning":
            self._thought += _thought(_read(item, _Reasoning))
        elif type == "additional_tools":
            self.tools += _read(item, _MoreTools).tools or ()
        elif type in _REFERENCES:
            raise InvalidRequest(
                f"Only OpenAI has what an item of type '{type}' stands for: send the item itself", param="input"
            )
        else:
            _log.debug("An item of type '%s' is left out: a chat cannot express it", type)

    def end(self) -> list[dict[str, Any]]:
        """All messages."""
        self._add_images()
        return self._messages

    def _add_message(self, message: _Message) -> None:
        role = message.role or "user"
        role = _ROLES.get(role, role)
        content = message.content or ""
        if not isinstance(content, str):
            self.count.add(len(content))
            content = joined(list(_parts(content)))  # type: ignore[assignment]
        if role == "assistant":
            self._said(content)
            return
        self._end_turn()
        self._add_images()
        add_message(self._messages, role, content)

    def _said(self, content: Any) -> dict[str, Any]:
        """The assistant's message that has ``content``, or a call without any, now."""
        turn = self._turn
        if turn is not None and content is not None:
            before = turn["content"]
            if "tool_calls" not in turn or not isinstance(content, str) or not isinstance(before, str | None):
                turn = None
            else:
                turn["content"] = f"{before}\n{content}" if before else content
        if turn is None:
            self._add_images()
            self._turn = turn = {"role": "assistant", "content": content}
            self._messages.append(turn)
        if self._thought:
            turn.update(thoughts(turn.get("reasoning_content", "") + self._thought))
            self._thought = ""
        return turn

    def _end_turn(self) -> None:
        self._turn, self._thought = None, ""

    def _add_result(self, result: _Output) -> None:
        text = bytes(result.output)
        if text.startswith(b"["):
            parts = _read(result.output, list[Part])
            self.count.add(len(parts))
            said = list(_parts(parts))
            self._images += [part for part in said if part["type"] != "text"]
            output = "\n".join(part["text"] for part in said if part["type"] == "text")
        else:
            output = _read(result.output, str) if text.startswith(b'"') else "" if text == b"null" else text.decode()
        self._messages.append({"role": "tool", "tool_call_id": result.call_id or "", "content": output})

    def _add_images(self) -> None:
        if self._images:
            self._messages.append({"role": "user", "content": self._images})
            self._images = []


def _read(item: Item, type: Any) -> Any:
    try:
        return msgspec.json.decode(item, type=type)
    except msgspec.ValidationError as error:
        raise invalid(error, "input[...]") from None


def _object_text(arguments: str) -> str:
    """The arguments of an earlier call. Engines refuse those that are no object, such as unfinished ones."""
    try:
        _object(arguments)
    except (ValueError, RecursionError):
        return json_text(parsed(arguments))
    return arguments


def _thought(reasoning: _Reasoning) -> str:
    return "".join(part.text or "" for part in reasoning.content or ())


def _parts(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        if part.type == "input_image":
            yield image_part(_address(part.image_url))
        elif part.type == "input_audio" and part.input_audio is not None:
            yield {"type": "input_audio", "input_audio": part.input_audio}
        elif part.type == "refusal":
            yield text_part(part.refusal or "")
        elif part.text is not None or part.type in _TEXTS:
            yield text_part(part.text or "")
        else:
            raise InvalidRequest(f"The engine has no content of type '{part.type}'", param="input")


class _Address(msgspec.Struct):
    url: msgspec.Raw


def _address(image: msgspec.Raw) -> msgspec.Raw:
    """The URL of an image, as JSON. Some clients send it as chats have it."""
    if bytes(memoryview(image)[:1]) == b"{":
        image = _read(image, _Address).url
    if bytes(memoryview(image)[:4]) == b"null":
        raise InvalidRequest("An image needs its 'image_url': the gateway keeps no files", param="input")
    raw_text(image, "input")
    return image


def _format(format: TextFormat | None) -> dict[str, Any] | None:
    if format is None or format.type == "text":
        return None
    if format.type != "json_schema":
        return {"type": format.type}
    schema: dict[str, Any] = {"name": format.name, "schema": format.schema}
    put(schema, strict=format.strict)
    return {"type": "json_schema", "json_schema": schema}


def _offered(tool: Tool, choice: Any) -> bool:
    """Whether the model is offered a tool. Raises ``InvalidRequest`` for one that nobody could run.

    Such a tool is left out where the ``choice`` of tools leaves it out.
    """
    if tool.type in ("function", "custom"):
        return True
    if _leaves_out(choice, tool.type):
        return False
    if tool.type in _MODELS_OWN:
        raise InvalidRequest(
            f"Only OpenAI's models know the tool '{tool.type}': declare a function in its place", param="tools"
        )
    if tool.type.startswith(_OPENAIS):
        raise InvalidRequest(f"Only OpenAI runs the tool '{tool.type}': remove it from 'tools'", param="tools")
    if tool.type not in _LEFT_OUT:
        _log.debug("A tool of type '%s' is left out: a chat cannot express it", tool.type)
    return False


def _leaves_out(choice: Any, type: str) -> bool:
    """Whether the choice of tools says that none of this ``type`` is called."""
    if not isinstance(choice, dict):
        return bool(choice == "none")
    if choice.get("type") != "allowed_tools":
        return choice.get("type") in ("function", "custom")
    return all(each.get("type") != type for each in choice.get("tools") or () if isinstance(each, dict))


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.type == "custom":
        return custom_function(tool.name or "", tool.description, tool.format)
    return function_tool(tool.name or "", tool.description, tool.parameters, tool.strict)


def _choice(choice: Any, tools: dict[str, Tool]) -> Any:
    """The choice as chats have it. One of some ``tools`` leaves only those. Raises ``InvalidRequest``."""
    if not isinstance(choice, dict):
        return choice
    type = choice.get("type")
    if type in ("function", "custom"):
        return {"type": "function", "function": {"name": choice.get("name", "")}}
    if type == "allowed_tools":
        allowed = {each.get("name") for each in choice.get("tools") or () if isinstance(each, dict)}
        for name in [*tools]:
            if name not in allowed:
                del tools[name]
        return choice.get("mode", "auto")
    raise InvalidRequest(f"Only OpenAI runs the tool '{type}' of 'tool_choice'", param="tool_choice")


def custom_function(name: str, description: str | None, format: Any) -> dict[str, Any]:
    """The tool as a function. A grammar that its text must follow becomes a part of the description."""
    about = description or ""
    if isinstance(format, dict) and isinstance(grammar := format.get("definition"), str):
        about += f"\n\nThe input follows this grammar ({format.get('syntax', 'lark')}):\n{grammar}"
    text = {"type": "string", "description": "The whole input of the tool, as it is"}
    parameters = {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}
    return function_tool(name, about.strip() or None, parameters)


def arguments_of(text: str) -> str:
    """The arguments of a call with this text."""
    return msgspec.json.encode({_INPUT: text}).decode()


def text_of(arguments: str) -> str:
    """The text of a call with these arguments. Models that ignore the schema call it otherwise, or send it bare."""
    try:
        found = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    if isinstance(found, dict):
        texts = [value for value in found.values() if isinstance(value, str)]
        if isinstance(named := found.get(_INPUT), str):
            return named
        if len(texts) == len(found) == 1:
            return texts[0]
    return found if isinstance(found, str) else arguments
