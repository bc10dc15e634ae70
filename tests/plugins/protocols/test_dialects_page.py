"""docs/reference/dialects.md says what the code does, and has every field that the vendors' clients can send."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Mapping
from typing import Any

import pytest

from enginehouse import InvalidRequest
from enginehouse.drivers import LaunchSpec, ThinkingFields
from enginehouse_kit.protocols import Protocol, ProtocolRequest, Translation
from enginehouse_kit.testing import create
from enginehouse_protocols.chats import budget_fields, effort_fields, switch_fields
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_protocols.ollama import request as ollama_chat
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.responses.protocol import Responses
from tests.support.installed_plugins import installed_plugins
from tests.support.paths import DOCS

PAGE = (DOCS / "reference" / "dialects.md").read_text("utf-8")
SCHEMA = {"type": "object", "properties": {}}
HELLO = [{"role": "user", "content": "hi"}]
BASE: dict[str, tuple[Protocol, dict[str, Any]]] = {
    "/v1/messages": (
        Messages(),
        {"model": "m", "max_tokens": 9, "messages": HELLO, "tools": [{"name": "f", "input_schema": SCHEMA}]},
    ),
    "/v1/responses": (
        Responses(),
        {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
    ),
    "/api/chat": (Ollama(), {"model": "m", "messages": HELLO}),
    "/api/generate": (Ollama(), {"model": "m", "prompt": "hi"}),
}
SAMPLES: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "model": "other",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "ho"}]}],
        "system": "be",
        "max_tokens": 7,
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.5,
        "top_k": 5,
        "stop_sequences": ["x"],
        "tools": [{"name": "g"}],
        "tool_choice": {"type": "any"},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"effort": "low"},
        "output_format": {"type": "json_schema", "schema": SCHEMA},
        "metadata": {"user_id": "ann"},
        "mcp_servers": [{"url": "x"}],
        "thread": {"type": "create"},
        "compaction": {"type": "summarize"},
    },
    "/v1/responses": {
        "model": "other",
        "input": "ho",
        "instructions": "be",
        "max_output_tokens": 7,
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.5,
        "user": "ann",
        "prompt_cache_key": "k",
        "tools": [{"type": "function", "name": "g"}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_object"}},
        "background": True,
        "conversation": "c",
        "prompt": {"id": "p"},
        "store": False,
        "metadata": {"a": "b"},
    },
    "/api/chat": {
        "model": "other",
        "messages": [{"role": "user", "content": "ho", "images": ["iVBORw0KGgo="]}],
        "stream": False,
        "tools": [{"function": {"name": "g"}}],
        "format": "json",
        "think": True,
        "options": {"seed": 5},
        "keep_alive": "5m",
    },
    "/api/generate": {
        "model": "other",
        "prompt": "ho",
        "system": "be",
        "images": ["iVBORw0KGgo="],
        "raw": True,
        "suffix": "end",
        "stream": False,
        "format": "json",
        "think": True,
        "options": {"seed": 5},
        "keep_alive": "5m",
    },
}
"""Values that the chat would not have otherwise. Of the fields that are dropped any value will do."""
KEPT_APART = {("/v1/responses", "previous_response_id")}


def rows(title: str, columns: int) -> list[list[str]]:
    section = PAGE.partition(f"# {title}\n")[2].partition("\n#")[0]
    found = [line.strip("|").split(" | ") for line in section.split("\n") if line.startswith("| ")]
    return [[cell.strip(" |`") for cell in row] for row in found[1:] if len(row) >= columns]


def chat(path: str, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    protocol, base = BASE[path]
    body = json.dumps({**base, **fields}).encode()
    made = protocol.translate(ProtocolRequest(path, body, lambda _: True))
    assert isinstance(made, Translation)
    return made.path, json.loads(made.body)


FIELDS = [(path, field, verdict) for path, field, verdict, *_ in rows("Requests", 3)]


@pytest.mark.parametrize(("path", "field", "verdict"), FIELDS)
def test_a_field_becomes_what_the_page_says(path: str, field: str, verdict: str) -> None:
    if (path, field) in KEPT_APART:
        assert verdict == "kept"
        return
    value = SAMPLES[path].get(field, {"any": 1})
    if verdict == "refused":
        with pytest.raises(InvalidRequest, match=field):
            chat(path, {field: value})
        return
    before, after = chat(path, {}), chat(path, {field: value})
    if after == before:
        assert verdict in ("dropped", "kept")
    elif after[1].get(field) == value and field in after[1]:
        assert verdict == "passed"
    else:
        assert verdict == "mapped"


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/v1/messages", "anthropic.types.message_create_params:MessageCreateParamsBase.__annotations__"),
        ("/v1/messages", "anthropic.types.beta.message_create_params:MessageCreateParamsBase.__annotations__"),
        ("/v1/responses", "openai.types.responses.response_create_params:ResponseCreateParamsBase.__annotations__"),
        ("/api/chat", "ollama._types:ChatRequest.model_fields"),
        ("/api/generate", "ollama._types:GenerateRequest.model_fields"),
    ],
)
def test_every_field_that_a_client_can_send_is_on_the_page(path: str, known: str) -> None:
    on_page = {field for at, field, _ in FIELDS if at == path}
    fields: Mapping[str, Any] = pkgutil.resolve_name(known)  # imported here: the packages take seconds
    assert fields.keys() - {"betas"} <= on_page  # those are a header
    assert SAMPLES[path].keys() <= on_page


def test_the_options_are_those_of_the_page() -> None:
    on_page = {option: re.findall(r"[a-z_]+", name)[0] for option, name, *_ in rows("Options of Ollama", 2)}
    assert on_page == ollama_chat._OPTIONS


CONTENT: dict[tuple[str, str], Any] = {
    ("Messages", "text"): {"type": "text", "text": "x"},
    ("Messages", "image"): {"type": "image", "source": {"type": "url", "url": "http://x"}},
    ("Messages", "document"): {"type": "document", "source": {"type": "text", "data": "x"}},
    ("Messages", "search_result"): {"type": "search_result", "title": "t", "content": [{"type": "text", "text": "x"}]},
    ("Messages", "tool_use"): {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    ("Messages", "tool_result"): {"type": "tool_result", "tool_use_id": "a", "content": "x"},
    ("Messages", "thinking"): {"type": "thinking", "thinking": "x", "signature": "s"},
    ("Messages", "redacted_thinking"): {"type": "redacted_thinking", "data": "x"},
    ("Messages", "server_tool_use"): {"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}},
    ("Messages", "mcp_tool_use"): {"type": "mcp_tool_use", "id": "a", "name": "x", "input": {}},
    ("Messages", "compaction"): {"type": "compaction", "content": "x"},
    ("Messages", "audio"): {"type": "audio"},
    ("Responses", "message"): {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    ("Responses", "function_call"): {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    ("Responses", "function_call_output"): {"type": "function_call_output", "call_id": "a", "output": "x"},
    ("Responses", "custom_tool_call"): {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"},
    ("Responses", "custom_tool_call_output"): {"type": "custom_tool_call_output", "call_id": "a", "output": "x"},
    ("Responses", "reasoning"): {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "x"}],
    },
    ("Responses", "additional_tools"): {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]},
    ("Responses", "item_reference"): {"type": "item_reference", "id": "x"},
    ("Responses", "compaction"): {"type": "compaction", "encrypted_content": "x"},
}
TOOLS: dict[tuple[str, str], Any] = {
    ("Messages", "custom"): {"type": "custom", "name": "g", "input_schema": SCHEMA},
    ("Messages", "web_search_20250305"): {"type": "web_search_20250305", "name": "web_search"},
    ("Messages", "bash_20250124"): {"type": "bash_20250124", "name": "bash"},
    ("Responses", "function"): {"type": "function", "name": "g"},
    ("Responses", "custom"): {"type": "custom", "name": "g"},
    ("Responses", "web_search"): {"type": "web_search"},
    ("Responses", "local_shell"): {"type": "local_shell"},
    ("Responses", "namespace"): {"type": "namespace", "name": "x", "tools": []},
}


def said(dialect: str, content: Any | None) -> dict[str, Any]:
    """A conversation with the content in its place: the assistant's, or between two messages of the user."""
    if dialect == "Responses":
        answer = [{"type": "message", "role": "assistant", "content": "ho"}]
        return {"input": [{"role": "user", "content": "hi"}, *([content] if content else []), *answer]}
    blocks = [{"type": "text", "text": "hi"}, *([content] if content else [])]
    role = "assistant" if content and content["type"] in ("tool_use", "thinking") else "user"
    return {"messages": [{"role": role, "content": blocks}]}


@pytest.mark.parametrize(("dialect", "type", "verdict"), [row[:3] for row in rows("Content", 3)])
def test_content_becomes_what_the_page_says(dialect: str, type: str, verdict: str) -> None:
    path = "/v1/messages" if dialect == "Messages" else "/v1/responses"
    _compare(path, said(dialect, None), said(dialect, CONTENT[dialect, type]), type, verdict)


@pytest.mark.parametrize(("dialect", "type", "verdict"), [row[:3] for row in rows("Tools", 3)])
def test_tools_become_what_the_page_says(dialect: str, type: str, verdict: str) -> None:
    path = "/v1/messages" if dialect == "Messages" else "/v1/responses"
    _compare(path, {"tools": []}, {"tools": [TOOLS[dialect, type]]}, type, verdict)


def _compare(path: str, before: dict[str, Any], after: dict[str, Any], type: str, verdict: str) -> None:
    if verdict == "refused":
        with pytest.raises(InvalidRequest, match=type):
            chat(path, after)
    else:
        assert (chat(path, before) == chat(path, after)) == (verdict == "dropped")


def test_thinking_is_what_the_page_says() -> None:
    on_page = {asked: fields for asked, fields, *_ in rows("Thinking", 2)}

    def written(fields: dict[str, Any]) -> str:
        return ", ".join(f"{name}: {json.dumps(value)}" for name, value in fields.items())

    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
        assert on_page[f"effort `{effort}"] == written(effort_fields(effort))
    for row, tokens in (("up to 4096", 4096), ("up to 16384", 16384), ("above", 16385)):
        fields = written(budget_fields(tokens)).replace(str(tokens), "N")
        assert on_page[f"thinking.budget_tokens` {row}"] == fields
    assert on_page["think: true"] == written(switch_fields(on=True))
    assert on_page['thinking.type: "disabled"`, `think: false'] == written(switch_fields(on=False))


DRIVERS = [[*row, ""][:3] for row in rows("Thinking by driver", 2)]


@pytest.mark.parametrize(("name", "level", "budget"), DRIVERS)
def test_engines_get_what_the_page_says_of_their_drivers(name: str, level: str, budget: str) -> None:
    asked = {"thinking": {"type": "enabled", "budget_tokens": 9000}}
    body = json.dumps({**BASE["/v1/messages"][1], **asked}).encode()
    made = Messages().translate(ProtocolRequest("/v1/messages", body, lambda _: True))
    assert isinstance(made, Translation)
    launched = LaunchSpec(model="m", path="/m", port=1, args=["--reasoning-parser=qwen3"])
    chat = json.loads(made.body_for(create("driver", name).thinking(launched)))
    assert chat.pop("reasoning_effort") == "medium"
    assert chat.pop("chat_template_kwargs", None) == ({"reasoning_effort": "medium"} if "also" in level else None)
    field = budget.partition("`")[0]
    assert chat.pop(field, None) == (9000 if field else None)
    before = json.loads(made.body)
    assert chat.items() <= before.items()
    assert before.keys() - chat.keys() == {"reasoning_effort", "thinking_budget_tokens"}
    if "if the gateway" in budget:
        assert field not in json.loads(made.body_for(create("driver", name).thinking(None)))


def test_every_driver_that_differs_is_on_the_page() -> None:
    named = {name for name, *_ in DRIVERS}
    for type in installed_plugins().types("driver"):
        assert type in named or create("driver", type).thinking(None) == ThinkingFields(), type
