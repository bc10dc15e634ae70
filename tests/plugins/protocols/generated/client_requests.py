"""Makes conversations of agents, as the clients of each dialect send them, and says what a chat has of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

PNG = "iVBORw0KGgo="
_WORDS = ("a", "be", "\n", "é", "日本", '"', "\\", "{}", "🚂", "x\ny")


@dataclass
class Turn:
    """One thing of a conversation. ``kind``: ``user``, ``assistant``, ``call`` (with its result) or ``thought``."""

    kind: str
    text: str
    image: bool = False
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    result: str = ""
    result_image: bool = False


@dataclass
class Talk:
    """A conversation with its system prompt and tools."""

    system: str
    turns: list[Turn]
    tools: list[str]
    choice: str
    limit: int | None
    temperature: float | None


def talk(seed: int) -> Talk:
    """The conversation of a seed."""
    rng = Random(seed)
    turns: list[Turn] = []
    for number in range(rng.randrange(1, 8)):
        kind = rng.choice(("user", "assistant", "calls", "user"))
        if kind == "calls":
            if rng.random() < 0.3:
                turns.append(Turn("thought", _text(rng)))
            turns += [_call(rng, f"call_{number}_{place}") for place in range(rng.randrange(1, 4))]
        else:
            turns.append(Turn(kind, _text(rng), image=kind == "user" and rng.random() < 0.2))
    turns.append(Turn("user", _text(rng)))
    tools = rng.sample(["look", "add", "patch"], rng.randrange(4))
    return Talk(
        rng.choice(("", _text(rng))),
        turns,
        tools,
        rng.choice(("", "auto", "none", "any", *tools)) if tools else "",
        rng.choice((None, 5, 1000)),
        rng.choice((None, 0.0, 0.5)),
    )


def _call(rng: Random, id: str) -> Turn:
    arguments = {f"k{number}": rng.choice((1, None, _text(rng), [1, "x"])) for number in range(rng.randrange(3))}
    made = Turn("call", "", id=id, name=rng.choice(("look", "add")), arguments=arguments)
    made.result, made.result_image = _text(rng), rng.random() < 0.2
    return made


def _text(rng: Random) -> str:
    return "".join(rng.choice(_WORDS) for _ in range(rng.randrange(1, 6)))


# --- what a chat has of it


def summary(messages: list[dict[str, Any]]) -> list[Any]:
    """A chat's messages without what may differ: how texts of one message are joined, and where images stand."""
    found: list[Any] = []
    for message in messages:
        content = message.get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        images = sum(part["type"] == "image_url" for part in parts)
        calls = [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ]
        thought = message.get("reasoning_content") or ""
        assert message.get("reasoning", thought) == thought
        found.append((message["role"], text, images, calls, message.get("tool_call_id", ""), thought))
    return found


def expected(asked: Talk, *, is_response: bool = False) -> list[Any]:
    """The summary of the conversation as a chat: calls of one turn, their results, then the images of those.

    ``is_response``: what is said before calls is in their message, because a response has it in an item of its own.
    """
    found: list[Any] = [("system", asked.system, 0, [], "", "")] if asked.system else []
    thought, images, calls = "", 0, []  # type: str, int, list[Turn]

    def end_calls() -> None:
        nonlocal thought, images, calls
        if calls:
            made = [(call.id, call.name, call.arguments) for call in calls]
            said = found.pop()[1] if is_response and found and found[-1][:4:3] == ("assistant", []) else ""
            found.append(("assistant", said, 0, made, "", thought))
            found.extend(("tool", call.result, 0, [], call.id, "") for call in calls)
            images = sum(call.result_image for call in calls)
            thought, calls = "", []
        if images:
            found.append(("user", "", images, [], "", ""))
            images = 0

    for turn in asked.turns:
        if turn.kind == "call":
            calls.append(turn)
            continue
        end_calls()
        if turn.kind == "thought":
            thought = turn.text
        else:
            found.append((turn.kind, turn.text, int(turn.image), [], "", ""))
    end_calls()
    return found


def joined_turns(chat: list[Any], between: str, *roles: str) -> list[Any]:
    """A summary in which messages in a row of one of these ``roles`` are one, with ``between`` their texts."""
    found: list[Any] = []
    for role, text, images, calls, id, thought in chat:
        if found and found[-1][0] == role and role in roles:
            _, said, seen, called, _, thoughts = found.pop()
            text = between.join(each for each in (said, text) if each)
            images, calls, thought = seen + images, called + calls, thoughts + thought
        found.append((role, text, images, calls, id, thought))
    return found


# --- as clients send it


def _grouped(asked: Talk) -> list[tuple[str, list[Turn]]]:
    """The turns by who has them: texts alone, and calls of one turn together with the thought before them."""
    groups: list[tuple[str, list[Turn]]] = []
    for turn in asked.turns:
        kind = "calls" if turn.kind in ("call", "thought") else turn.kind
        begins = turn.kind == "thought" or not groups or groups[-1][0] != "calls" or kind != "calls"
        if begins:
            groups.append((kind, [turn]))
        else:
            groups[-1][1].append(turn)
    return groups


def as_message(asked: Talk, rng: Random) -> dict[str, Any]:
    """The request of Anthropic's Messages."""
    messages: list[dict[str, Any]] = []
    for kind, turns in _grouped(asked):
        if kind != "calls":
            [turn] = turns
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
            text = {"type": "text", "text": turn.text, "cache_control": {"type": "ephemeral"}}
            plain = not turn.image and rng.random() < 0.5
            content: Any = turn.text if plain else [text, *([image] if turn.image else [])]
            messages.append({"role": kind, "content": content})
            continue
        calls = [turn for turn in turns if turn.kind == "call"]
        blocks = [
            {"type": "thinking", "thinking": turn.text, "signature": "s"} for turn in turns if turn.kind == "thought"
        ]
        uses = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
        messages.append({"role": "assistant", "content": [*blocks, *uses]})
        messages.append({"role": "user", "content": [_result_block(call, rng) for call in calls]})
    body: dict[str, Any] = {"model": "m", "max_tokens": asked.limit or 9, "messages": messages}
    if asked.system:
        body["system"] = asked.system if rng.random() < 0.5 else [{"type": "text", "text": asked.system}]
    if asked.temperature is not None:
        body["temperature"] = asked.temperature
    if asked.tools:
        body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in asked.tools]
    if asked.choice:
        named = asked.choice in asked.tools
        body["tool_choice"] = {"type": "tool", "name": asked.choice} if named else {"type": asked.choice}
    return body


def _result_block(call: Turn, rng: Random) -> dict[str, Any]:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    plain = not call.result_image and rng.random() < 0.5
    parts = [{"type": "text", "text": call.result}, *([image] if call.result_image else [])]
    return {"type": "tool_result", "tool_use_id": call.id, "content": call.result if plain else parts}


def as_response(asked: Talk, rng: Random) -> dict[str, Any]:
    """The request of OpenAI's Responses."""
    items: list[dict[str, Any]] = []
    url = f"data:image/png;base64,{PNG}"
    for kind, turns in _grouped(asked):
        if rng.random() < 0.2:
            items.append(rng.choice(_SKIPPED))
        if kind != "calls":
            [turn] = turns
            of = "output_text" if kind == "assistant" else "input_text"
            parts = [{"type": of, "text": turn.text}]
            if turn.image:
                parts.append({"type": "input_image", "image_url": url})
            plain = not turn.image and rng.random() < 0.5
            item: dict[str, Any] = {"role": kind, "content": turn.text if plain else parts}
            items.append(item if rng.random() < 0.5 else {"type": "message", **item})
            continue
        calls = [turn for turn in turns if turn.kind == "call"]
        for turn in turns:
            if turn.kind == "thought":
                content = [{"type": "reasoning_text", "text": turn.text}]
                items.append({"type": "reasoning", "id": "rs", "summary": [], "content": content})
        items += [
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": json.dumps(c.arguments)}
            for c in calls
        ]
        for call in calls:
            shown = [{"type": "input_text", "text": call.result}]
            if call.result_image:
                shown.append({"type": "input_image", "image_url": url})
            output = call.result if not call.result_image and rng.random() < 0.5 else shown
            items.append({"type": "function_call_output", "call_id": call.id, "output": output})
    body: dict[str, Any] = {"model": "m", "input": items}
    if asked.system:
        body["instructions"] = asked.system
    if asked.limit is not None:
        body["max_output_tokens"] = asked.limit
    if asked.temperature is not None:
        body["temperature"] = asked.temperature
    if asked.tools:
        body["tools"] = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in asked.tools]
    if asked.choice:
        named = asked.choice in asked.tools
        words = {"any": "required"}
        choice = words.get(asked.choice, asked.choice)
        body["tool_choice"] = {"type": "function", "name": asked.choice} if named else choice
    return body


_SKIPPED: tuple[dict[str, Any], ...] = (
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}},
    {"type": "compaction", "encrypted_content": "x"},
    {"type": "tool_search_call", "call_id": None, "arguments": {"q": 1}, "content": 5},
    {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
    {"type": "new_in_2030"},
)


def as_ollama(asked: Talk) -> dict[str, Any]:
    """The request of Ollama's chat. Its calls have ids, as newer clients send them."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": asked.system}] if asked.system else []
    for kind, turns in _grouped(asked):
        if kind != "calls":
            [turn] = turns
            messages.append({"role": kind, "content": turn.text, **({"images": [PNG]} if turn.image else {})})
            continue
        calls = [turn for turn in turns if turn.kind == "call"]
        thought = "".join(turn.text for turn in turns if turn.kind == "thought")
        made = [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in calls]
        messages.append({"role": "assistant", "content": "", "thinking": thought, "tool_calls": made})
        messages += [
            {"role": "tool", "content": call.result, "tool_call_id": call.id, "tool_name": call.name} for call in calls
        ]
    body: dict[str, Any] = {"model": "m", "messages": messages, "options": {}}
    if asked.limit is not None:
        body["options"]["num_predict"] = asked.limit
    if asked.temperature is not None:
        body["options"]["temperature"] = asked.temperature
    if asked.tools:
        body["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in asked.tools
        ]
    return body
