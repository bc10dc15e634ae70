"""Requests as chats, and chats' answers as the client's, for what the simulated engine does not say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import InvalidRequest
from enginehouse.errors import UpstreamError
from enginehouse_kit.protocols import Native, Protocol, ProtocolRequest, Translation
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.responses.protocol import Responses

PNG = "iVBORw0KGgo="
CALLS = [
    {"index": 0, "id": "call_a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
    {"index": 1, "id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
]


def translated(protocol: Protocol, path: str, body: dict[str, Any]) -> Translation:
    made = protocol.translate(ProtocolRequest(path, json.dumps(body).encode(), lambda name: name == "m"))
    assert isinstance(made, Translation)
    return made


def message(*turns: dict[str, Any], **fields: Any) -> Translation:
    return translated(Messages(), "/v1/messages", {"model": "m", "max_tokens": 9, "messages": list(turns), **fields})


def asked(translation: Translation) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(translation.body)
    return found


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def streamed(translation: Translation, events: Sequence[dict[str, Any]]) -> str:
    return b"".join([*map(translation.event, events), translation.end()]).decode()


def sse(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]


def test_a_conversation_with_tools_images_and_thoughts_as_a_chat() -> None:
    chat = asked(
        message(
            {"role": "user", "content": [{"type": "text", "text": "look"}, image()]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "2"}]},
                    {"type": "text", "text": "and now?"},
                ],
            },
            {"role": "system", "content": "be quick"},
            system=[{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}],
            stop_sequences=["END"],
            thinking={"type": "enabled", "budget_tokens": 2000},
            metadata={"user_id": "ann"},
        )
    )
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]
    call = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    assert chat["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "so", "tool_calls": [call], "reasoning_content": "hm", "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "t1", "content": "2"},
        {"role": "user", "content": "and now?"},
        {"role": "system", "content": "be quick"},
    ]
    assert (chat["stop"], chat["reasoning_effort"], chat["user"]) == (["END"], "low", "ann")


@pytest.mark.parametrize(("effort", "level"), [("low", "low"), ("medium", "medium"), ("high", "high"), ("max", "high")])
def test_the_effort_of_a_message_is_a_level_that_engines_know(effort: str, level: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": 9000}
    user = {"role": "user", "content": "hi"}
    made = asked(message(user, thinking=thinking, output_config={"effort": effort}))
    assert (made["reasoning_effort"], made["thinking_budget_tokens"]) == (level, 9000)
    assert asked(message(user, thinking=thinking, output_config={}))["reasoning_effort"] == "medium"


@pytest.mark.parametrize(
    ("protocol", "path", "fields"),
    [
        (Messages(), "/v1/messages", {"output_config": {"effort": "vast"}, "max_tokens": 9}),
        (Responses(), "/v1/responses", {"reasoning": {"effort": "vast"}, "input": "hi"}),
        (Ollama(), "/api/chat", {"think": "vast"}),
    ],
)
def test_an_effort_that_no_engine_knows_is_refused_by_name(
    protocol: Protocol, path: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest, match="vast"):
        translated(protocol, path, {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields})


@pytest.mark.parametrize("speaks", [False, True])
@pytest.mark.parametrize("type", ["create", "continue"])
def test_a_thread_is_refused_as_anthropics_sdk_reads_it(type: str, speaks: bool) -> None:
    thread = {"type": type, "previous_message_id": "msg_1"}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "thread": thread}
    request = ProtocolRequest("/v1/messages", json.dumps(body).encode(), lambda name: name == "m")
    with pytest.raises(InvalidRequest, match="keeps no threads") as refused:
        Messages().native(request) if speaks else Messages().translate(request)
    error = json.loads(Messages().error(400, refused.value.envelope()))["error"]
    assert error["details"] == {"error_code": "thread_unsupported_request"}


@pytest.mark.parametrize("said", [{}, {"thread": None}, {"metadata": {"user_id": '"thread"'}}])
def test_a_message_without_a_thread_reaches_an_engine_that_speaks_the_protocol(said: dict[str, Any]) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a thread"}], **said}
    request = ProtocolRequest("/v1/messages", json.dumps(body).encode(), lambda name: name == "m")
    assert Messages().native(request) == Native()
    assert isinstance(Messages().translate(request), Translation)


def test_a_document_tells_its_title_and_its_context() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "the text"}
    document = {"type": "document", "title": "T", "context": "from 1999", "source": source}
    assert asked(message({"role": "user", "content": [document]}))["messages"][0]["content"] == "T\nfrom 1999\nthe text"


@pytest.mark.parametrize("alone", [False, True])
def test_the_summary_of_earlier_turns_is_the_users(alone: bool) -> None:
    summary = {"type": "compaction", "content": "we built a shed", "signature": "s"}
    failed = {"type": "compaction", "content": None}
    more = [] if alone else [{"type": "text", "text": "Next?"}]
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": [failed, summary, *more]},
        {"role": "user", "content": "A fence"},
    ]
    chat = asked(message(*turns))["messages"]
    if alone:
        assert chat == [{"role": "user", "content": "we built a shed\nA fence"}]
    else:
        said = ["we built a shed", "Next?", "A fence"]
        assert [turn["role"] for turn in chat] == ["user", "assistant", "user"]
        assert [turn["content"] for turn in chat] == said


def test_turns_of_one_role_in_a_row_are_one() -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    chat = asked(
        message(
            {"role": "user", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two"}, image()]},
            {"role": "assistant", "content": "so"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": "wait"},
            {"role": "user", "content": [result]},
            {"role": "system", "content": "x"},
            {"role": "system", "content": "y"},
        )
    )["messages"]
    assert [turn["role"] for turn in chat] == ["user", "assistant", "tool", "user", "system", "system"]
    assert [part["type"] for part in chat[0]["content"]] == ["text", "text", "image_url"]
    assert (chat[1]["content"], chat[1]["tool_calls"][0]["id"]) == ("so", "a")
    assert (chat[2]["content"], chat[3]["content"]) == ("1", "wait")


def image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def test_a_message_has_thoughts_text_and_parallel_calls_in_blocks() -> None:
    said = {"reasoning_content": "hm", "content": "so", "tool_calls": CALLS}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    answer = {"choices": [{"message": said, "finish_reason": "tool_calls"}], "usage": usage}
    whole = json.loads(message().answer(answer))
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.get("input") for block in whole["content"][2:]] == [{"a": 1}, {}]
    assert whole["stop_reason"] == "tool_use"
    assert (whole["usage"]["input_tokens"], whole["usage"]["cache_read_input_tokens"]) == (6, 3)


def test_the_events_of_a_message_open_and_close_each_block() -> None:
    first = {**CALLS[0], "function": {"name": "add", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"a": 1}'}}
    events = [
        delta(reasoning_content="hm"),
        delta(content="so"),
        delta(tool_calls=[first]),
        delta(tool_calls=[rest]),
        delta(tool_calls=[CALLS[1]], finish="tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}},
    ]
    told = sse(streamed(message(stream=True), events))
    blocks = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [event["type"] for event in told] == ["message_start", "ping", *blocks * 4, "message_delta", "message_stop"]
    assert [event["index"] for event in told if "index" in event] == [n for n in range(4) for _ in blocks]
    assert told[-2]["delta"]["stop_reason"] == "tool_use"
    assert told[-2]["usage"]["output_tokens"] == 4


def test_a_message_that_calls_the_chosen_tool_ends_for_it() -> None:
    answer = {"choices": [{"message": {"tool_calls": CALLS[:1]}, "finish_reason": "stop"}]}
    assert json.loads(message().answer(answer))["stop_reason"] == "tool_use"
    told = sse(streamed(message(stream=True), [delta(tool_calls=CALLS[:1]), delta(finish="stop")]))
    assert told[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("name", ["stop_reason", "matched_stop"])
@pytest.mark.parametrize(("at", "why"), [("END", "stop_sequence"), ("<|im_end|>", "end_turn"), (7, "end_turn")])
def test_the_stop_sequence_is_one_of_the_client(name: str, at: Any, why: str) -> None:
    last = delta("stop")
    last["choices"][0] |= {name: at}
    user = {"role": "user", "content": "hi"}
    told = sse(streamed(message(user, stream=True, stop_sequences=["END"]), [delta(content="x"), last]))
    assert told[-2]["delta"] == {"stop_reason": why, "stop_sequence": at if why == "stop_sequence" else None}


def test_a_prompt_that_is_too_long_is_told_in_anthropics_words() -> None:
    envelope = {"error": {"code": "context_length_exceeded", "message": "x", "details": {"tokens": 9, "limit": 8}}}
    error = json.loads(Messages().error(400, envelope))["error"]
    assert error["message"] == "prompt is too long: 9 tokens > 8 maximum"
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("status", "type"), [(422, "invalid_request_error"), (404, "not_found_error"), (500, "api_error")]
)
def test_the_type_of_an_error_follows_from_its_status(status: int, type: str) -> None:
    assert json.loads(Messages().error(status, {"error": {"code": "x", "message": "x"}}))["error"]["type"] == type


def test_parallel_calls_of_a_response_are_items_of_their_own() -> None:
    translation = translated(Responses(), "/v1/responses", {"model": "m", "input": "hi", "stream": True})
    told = sse(streamed(translation, [delta(reasoning="hm"), delta(tool_calls=CALLS), delta(finish="tool_calls")]))
    output = told[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call", "function_call"]
    assert [item["call_id"] for item in output[1:]] == ["call_a", "call_b"]
    assert [event["output_index"] for event in told if event["type"] == "response.output_item.done"] == [0, 1, 2]


def test_a_response_repeats_its_tools_and_the_form_of_its_text() -> None:
    tool = {"type": "function", "name": "add", "description": None, "parameters": {"type": "object"}, "strict": True}
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": None}
    body = {"model": "m", "input": "hi", "tools": [tool], "text": {"format": form}}
    whole = json.loads(translated(Responses(), "/v1/responses", body).answer({"choices": [{}]}))
    assert (whole["tools"], whole["text"]["format"]) == ([tool], form)


def test_a_response_has_no_conversation_elsewhere() -> None:
    with pytest.raises(InvalidRequest, match="keeps no conversations"):
        translated(Responses(), "/v1/responses", {"model": "m", "input": "hi", "conversation": "conv_1"})


def test_an_error_names_the_input_of_a_response() -> None:
    error = json.loads(Responses().error(400, {"error": {"param": "messages", "message": "x"}}))["error"]
    assert error == {"param": "input", "message": "x"}


def test_calls_of_one_turn_of_a_response_are_one_message_of_a_chat() -> None:
    calls = [{"type": "function_call", "call_id": id, "name": "add", "arguments": "{}"} for id in ("a", "b")]
    items = [
        {"role": "developer", "content": "x"},
        *calls,
        {"type": "function_call_output", "call_id": "a", "output": "1"},
    ]
    chat = asked(translated(Responses(), "/v1/responses", {"model": "m", "input": items}))
    assert [turn["role"] for turn in chat["messages"]] == ["system", "assistant", "tool"]
    assert [call["id"] for call in chat["messages"][1]["tool_calls"]] == ["a", "b"]


def test_a_turn_of_a_response_is_one_message_as_its_engine_wrote_it() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        said,
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"},
        {**said, "content": "And more."},
        {"type": "function_call", "call_id": "b", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {**said, "content": "Done."},
        {**said, "content": "Twice."},
    ]
    turns = asked(translated(Responses(), "/v1/responses", {"model": "m", "input": items}))["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool", "assistant", "assistant"]
    assert (turns[1]["content"], turns[1]["reasoning"]) == ("I look.\nAnd more.", "hm")
    assert [call["id"] for call in turns[1]["tool_calls"]] == ["a", "b"]
    assert [turn["content"] for turn in turns[4:]] == ["Done.", "Twice."]


def test_what_the_system_says_first_is_one_message() -> None:
    turns = [{"role": role, "content": role} for role in ("system", "user", "system")]
    items = [turns[0] | {"role": "developer"}, *turns[1:]]
    response = translated(Responses(), "/v1/responses", {"model": "m", "instructions": "first", "input": items})
    for made in (message(*turns, system="first"), response):
        found = [(turn["role"], turn["content"]) for turn in asked(made)["messages"]]
        assert found == [("system", "first\n\nsystem"), ("user", "user"), ("system", "system")]


def test_ollama_tells_a_call_when_it_is_whole() -> None:
    first = {**CALLS[0], "function": {"name": "add", "arguments": '{"a"'}}
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    translation = translated(Ollama(), "/api/chat", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    lines = streamed(translation, [delta(tool_calls=[first]), delta(tool_calls=[rest], finish="tool_calls")])
    told = [json.loads(line) for line in lines.split("\n") if line]
    assert [line["done"] for line in told] == [False, True]
    assert told[0]["message"]["tool_calls"][0]["function"] == {"index": 0, "name": "add", "arguments": {"a": 1}}


def test_options_formats_and_thinking_of_ollama() -> None:
    schema = {"type": "object"}
    options = {"num_predict": 7, "repeat_penalty": 1.1, "num_ctx": 8192}
    turns = [{"role": "user", "content": "hi", "images": [PNG]}]
    body = {"model": "m:latest", "messages": turns, "format": schema, "think": True, "options": options}
    chat = asked(translated(Ollama(), "/api/chat", body))
    assert (chat["model"], chat["max_tokens"]) == ("m", 7)
    assert (chat["repetition_penalty"], chat["repeat_penalty"]) == (1.1, 1.1), "llama.cpp knows only the latter"
    assert chat["response_format"]["json_schema"]["schema"] == schema
    assert chat["chat_template_kwargs"] == {"enable_thinking": True, "thinking": True}
    assert chat["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "num_ctx" not in chat


@pytest.mark.parametrize("field", ["messages", "max_tokens", "tools"])
def test_errors_name_the_field(field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        message({"role": "user", "content": "hi"}, **{field: 1.5})
    assert caught.value.param == field


PIECES = st.lists(
    st.one_of(
        st.builds(lambda text: delta(content=text), st.text(min_size=1)),
        st.builds(lambda text: delta(reasoning_content=text), st.text(min_size=1)),
    ),
    min_size=1,
)


@given(PIECES)
def test_streams_lose_no_text(pieces: list[dict[str, Any]]) -> None:
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    said = "".join(each.get("content", "") for each in deltas)
    thought = "".join(each.get("reasoning_content", "") for each in deltas)

    events = sse(streamed(message(stream=True), pieces))
    told = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(each.get("text", "") for each in told) == said
    assert "".join(each.get("thinking", "") for each in told) == thought

    response = translated(Responses(), "/v1/responses", {"model": "m", "input": "hi", "stream": True})
    last = sse(streamed(response, pieces))[-1]["response"]
    texts = [part["text"] for item in last["output"] for part in item["content"] if item["type"] == "message"]
    assert "".join(texts) == said

    chat = translated(Ollama(), "/api/chat", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    lines = [json.loads(line)["message"] for line in streamed(chat, pieces).split("\n") if line]
    assert "".join(line["content"] for line in lines) == said
    assert "".join(line.get("thinking", "") for line in lines) == thought


def test_a_namespace_of_tools_is_left_out() -> None:
    tools = [{"type": "namespace", "name": "mcp", "tools": []}, {"type": "function", "name": "add", "parameters": {}}]
    chat = asked(translated(Responses(), "/v1/responses", {"model": "m", "input": "hi", "tools": tools}))
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["add"]


OLLAMA = {
    "model": "m",
    "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "options": {"num_predict": 5, "stop": ["a"]},
}
ENGINE = {
    "choices": [
        {
            "message": {"content": "a", "reasoning": "b", "tool_calls": CALLS},
            "finish_reason": "stop",
            "stop_reason": "x",
        }
    ],
    "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
}
ODD: list[Any] = [None, True, -1, 1.5, "", "x", [], [1], [{}], {}, {"a": [None]}]


def mutated(value: Any) -> Iterator[Any]:
    """Copies of ``value`` with an odd one somewhere inside."""
    if isinstance(value, dict | list):
        for place in list(value) if isinstance(value, dict) else range(len(value)):
            for other in [*ODD, *mutated(value[place])]:
                changed = value.copy()
                changed[place] = other
                yield changed


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_odd_fields_of_ollama_are_passed_on_or_refused(path: str) -> None:
    for body in mutated(OLLAMA):
        with suppress(InvalidRequest):
            translated(Ollama(), path, body)


@pytest.mark.parametrize("amount", [0, -1, -2])
def test_only_a_positive_number_limits_an_answer_of_ollama(amount: int) -> None:
    chat = asked(translated(Ollama(), "/api/chat", OLLAMA | {"options": {"num_predict": amount}}))
    assert "max_tokens" not in chat


def test_turns_in_a_row_are_one_as_ollama_itself_has_them() -> None:
    turns: list[dict[str, Any]] = [
        {"role": "system", "content": "a"},
        {"role": "system", "content": "b"},
        {"role": "user", "content": "one", "images": [PNG]},
        {"role": "user", "content": ""},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "so"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    chat = asked(translated(Ollama(), "/api/chat", {"model": "m", "messages": turns}))["messages"]
    assert [turn["role"] for turn in chat] == ["system", "user", "assistant", "tool", "tool"]
    assert chat[0]["content"] == "a\n\nb"
    assert chat[1]["content"][0] == {"type": "text", "text": "one\n\ntwo"}
    assert chat[1]["content"][1]["type"] == "image_url"


def test_an_empty_suffix_of_ollama_is_none() -> None:
    made = translated(Ollama(), "/api/generate", {"model": "m", "prompt": "hi", "suffix": "", "images": [PNG]})
    assert made.path == "/v1/chat/completions"
    assert [part["type"] for part in asked(made)["messages"][0]["content"]] == ["text", "image_url"]


def test_options_of_ollama_without_a_value_are_left_out() -> None:
    chat = asked(translated(Ollama(), "/api/chat", OLLAMA | {"options": {"num_predict": None, "seed": None}}))
    assert not chat.keys() & {"max_tokens", "seed"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("protocol", "path", "more"),
    [
        (Ollama(), "/api/chat", {"messages": [{"role": "user", "content": "hi"}]}),
        (Messages(), "/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
        (Responses(), "/v1/responses", {"input": "hi"}),
    ],
)
def test_odd_answers_of_engines_are_the_engines_fault(
    protocol: Protocol, path: str, more: dict[str, Any], stream: bool
) -> None:
    for answer in mutated(ENGINE):
        translation = translated(protocol, path, {"model": "m", "stream": stream, **more})
        with suppress(UpstreamError):
            translation.event(answer) if stream else translation.answer(answer)
            translation.end()


def test_arguments_that_an_engine_sends_as_an_object_arrive() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}
    answer = message({"role": "user", "content": "hi"}).answer({"choices": [{"message": {"tool_calls": [call]}}]})
    assert json.loads(answer)["content"][0]["input"] == {"a": 1}


@pytest.mark.parametrize("data", [None, "x", [1], [{}], [{"embedding": [], "index": "x"}]])
def test_embeddings_that_are_none_are_the_engines_fault(data: Any) -> None:
    with pytest.raises(UpstreamError, match="cannot be read"):
        translated(Ollama(), "/api/embed", {"model": "m", "input": "x"}).answer({"data": data, "usage": True})


FUNCTION = {"type": "function", "name": "f"}
SEARCH = {"type": "web_search"}


@pytest.mark.parametrize(
    ("choice", "dropped"),
    [
        ("none", True),
        ({"type": "function", "name": "f"}, True),
        ({"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}, True),
        ({"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION, SEARCH]}, False),
        ({"type": "allowed_tools", "mode": "auto", "tools": None}, True),
        ("auto", False),
        ("required", False),
        (None, False),
    ],
)
def test_a_tool_of_openai_is_dropped_where_the_choice_excludes_it(choice: Any, dropped: bool) -> None:
    body = {"model": "m", "input": "hi", "tools": [SEARCH, FUNCTION], "tool_choice": choice}
    if not dropped:
        with pytest.raises(InvalidRequest, match="web_search"):
            asked(translated(Responses(), "/v1/responses", body))
        return
    names = [
        tool["function"]["name"] for tool in asked(translated(Responses(), "/v1/responses", body)).get("tools", ())
    ]
    assert names == ([] if isinstance(choice, dict) and choice.get("tools", ()) is None else ["f"])


@pytest.mark.parametrize(
    ("choice", "dropped"),
    [
        ({"type": "none"}, True),
        ({"type": "tool", "name": "f"}, True),
        ({"type": "tool", "name": "web_search"}, False),
        ({"type": "auto"}, False),
        (None, False),
    ],
)
def test_a_tool_of_anthropic_is_dropped_where_the_choice_excludes_it(choice: Any, dropped: bool) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    tools = [search, {"name": "f", "input_schema": {"type": "object"}}]
    user = {"role": "user", "content": "hi"}
    if not dropped:
        with pytest.raises(InvalidRequest, match="web_search"):
            message(user, tools=tools, tool_choice=choice)
        return
    made = asked(message(user, tools=tools, tool_choice=choice))
    assert [tool["function"]["name"] for tool in made["tools"]] == ["f"]
    alone = asked(message(user, tools=[search], tool_choice=choice))
    assert "tools" not in alone
    assert "tool_choice" not in alone


def test_a_search_result_names_its_source() -> None:
    """``source`` is a text there, and an object in images and documents."""
    found = {"type": "search_result", "source": "https://x", "title": "t", "content": [{"type": "text", "text": "x"}]}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [found]}
    tool, user = asked(message({"role": "user", "content": [found, result]}))["messages"]
    assert (tool["content"], user["content"]) == ("t\nx", "t\nx")
    with pytest.raises(InvalidRequest, match="image"):
        message({"role": "user", "content": [{"type": "image", "source": "https://x"}]})


def ollama_ids(*turns: dict[str, Any]) -> list[str]:
    """The ids of the calls that the tools' messages of a chat answer."""
    chat = asked(translated(Ollama(), "/api/chat", {"model": "m", "messages": list(turns)}))
    return [turn["tool_call_id"] for turn in chat["messages"] if turn["role"] == "tool"]


def test_a_result_of_ollamas_belongs_to_a_call_of_its_tool() -> None:
    calls: list[dict[str, Any]] = [{"function": {"name": name, "arguments": {}}} for name in ("a", "b", "a")]
    turn = {"role": "assistant", "tool_calls": calls}
    results = [{"role": "tool", "tool_name": name, "content": name} for name in ("b", "a", "a", "a")]
    assert ollama_ids(turn, *results) == ["call_0_1", "call_0_0", "call_0_2", "call_4_0"]
    assert ollama_ids(turn, *[{"role": "tool", "content": "x"}] * 2) == ["call_0_0", "call_0_1"]
    calls[0]["id"] = "one"
    named = {"role": "tool", "tool_call_id": "one", "content": "x"}
    assert ollama_ids(turn, named, results[1]) == ["one", "call_0_2"]


def test_a_call_of_ollamas_without_a_result_takes_none_of_a_later_turn() -> None:
    turn = {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {}}}]}
    assert ollama_ids(turn, {"role": "user", "content": "no"}, turn, {"role": "tool", "content": "x"}) == ["call_2_0"]


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [('{"a":  1}', '{"a":  1}'), ('{"a": ', '{"arguments":"{\\"a\\": "}'), ("", "{}"), (" ", "{}"), ("null", "{}")],
)
def test_a_call_that_the_model_has_not_finished_ends_no_session(arguments: str, passed: str) -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments}
    chat = asked(translated(Responses(), "/v1/responses", {"model": "m", "input": [call]}))
    assert chat["messages"][0]["tool_calls"][0]["function"]["arguments"] == passed


def test_a_stream_whose_events_repeat_the_whole_message_is_read_once() -> None:
    said = [
        {"choices": [{"index": 0, "delta": {"content": new}, "message": {"role": "assistant", "content": so_far}}]}
        for new, so_far in (("a", "a"), ("b", "ab"))
    ]
    events = sse(streamed(message({"role": "user", "content": "hi"}, stream=True), said))
    assert "".join(each["delta"]["text"] for each in events if each["type"] == "content_block_delta") == "ab"


@pytest.mark.parametrize("counts", [{"usage": {"prompt_tokens": 12}}, {"timings": {"prompt_n": 5, "cache_n": 7}}])
@pytest.mark.parametrize(
    ("protocol", "path", "body", "said"),
    [
        (Messages(), "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]}, {}),
        (Responses(), "/v1/responses/input_tokens", {"input": "hi"}, {"object": "response.input_tokens"}),
    ],
)
def test_tokens_are_counted_by_the_engine(
    protocol: Protocol, path: str, body: dict[str, Any], said: dict[str, str], counts: dict[str, Any]
) -> None:
    counting = translated(protocol, path, {"model": "m", **body})
    assert json.loads(counting.body).items() >= {"max_tokens": 1, "stream": False}.items()
    choices = [{"index": 0, "message": {"content": "x"}}]
    assert json.loads(counting.answer({"choices": choices, **counts})) == {**said, "input_tokens": 12}
    with pytest.raises(UpstreamError, match="how many tokens"):
        counting.answer({"choices": choices})


def test_a_part_without_a_text_begins_no_block() -> None:
    nothing: list[dict[str, Any]] = [{"type": "thinking", "thinking": []}, {"type": "thinking", "thinking": ""}]
    parts = [{"type": "text", "text": "a"}, *nothing, {"type": "text", "text": "b"}]
    events = sse(streamed(message({"role": "user", "content": "hi"}, stream=True), [delta(content=parts)]))
    assert [each["content_block"]["type"] for each in events if each["type"] == "content_block_start"] == ["text"]


@pytest.mark.parametrize("usage", [{"reasoning_tokens": 5}, {"completion_tokens_details": {"reasoning_tokens": 5}}])
def test_tokens_of_reasoning_are_told(usage: dict[str, Any]) -> None:
    translation = translated(Responses(), "/v1/responses", {"model": "m", "input": "hi"})
    choices = [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]
    response = json.loads(translation.answer({"choices": choices, "usage": {"completion_tokens": 9, **usage}}))
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 5}
