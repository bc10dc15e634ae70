"""What engines and clients of each dialect really send, through a whole gateway."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from enginehouse.errors import LoadFailed
from tests.support.launched_engine import Launch
from tests.support.noted_records import NotedRecords
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import ScriptedEngine, StartEngine, chunk
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

HELLO = [{"role": "user", "content": "hi"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/v1/responses": {"input": "hi"},
    "/api/chat": {"messages": HELLO},
    "/api/generate": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": HELLO},
}
TRANSLATED = [path for path in ASKED if "completions" not in path]
STREAMS = ["/v1/chat/completions", *TRANSLATED]
ANSWER = {"choices": [{"message": {"content": "ho"}, "finish_reason": "stop"}]}


async def opened(house: OpenGateway, engine: StartEngine) -> tuple[ScriptedEngine, ServedGateway]:
    served = await engine()
    return served, await house(served, models={MODEL: {"endpoints": []}}, routing={"max_retries": 0})


def written(*events: dict[str, Any] | bytes) -> bytes:
    return b"".join(each if isinstance(each, bytes) else b"data: %s\n\n" % json.dumps(each).encode() for each in events)


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


DONE = b"data: [DONE]\n\n"


async def asked(gateway: ServedGateway, path: str, **fields: Any) -> RawResponse:
    return await gateway.ask(gateway.post({**ASKED[path], **fields}, path=path))


def told(served: ScriptedEngine) -> Any:
    return json.loads(served.calls[-1].body)


ERRORS: dict[str, tuple[bytes, int]] = {
    "vLLM": (written({"object": "error", "message": "No such thing", "type": "BadRequestError", "code": 400}), 400),
    "FastAPI": (written({"detail": "No such thing"}), 502),
    "llama.cpp": (written({"error": {"code": 400, "message": "No such thing", "type": "invalid_request_error"}}), 400),
    "a bare line": (b'{"error": {"code": 400, "message": "No such thing"}}\n\n', 400),
    "with its name": (b'error: {"code": 400, "message": "No such thing", "type": "invalid_request_error"}\n\n', 400),
    "TGI": (written({"error": {"message": "No such thing", "http_status_code": 422}}), 422),
    "TGI before": (written({"error": "No such thing", "error_type": "validation"}), 422),
    "TGI's own fault": (written({"error": "No such thing", "error_type": "generation"}), 502),
    "LiteLLM": (written({"error": {"message": "No such thing", "type": "None", "param": "None", "code": "400"}}), 400),
    "LM Studio": (b"event: error\n" + written({"error": {"message": "No such thing"}, "message": "no"}), 502),
}


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize(("error", "status"), ERRORS.values(), ids=ERRORS)
async def test_an_error_in_a_stream_of_status_200_is_an_error(
    house: OpenGateway, engine: StartEngine, path: str, error: bytes, status: int
) -> None:
    served, gateway = await opened(house, engine)
    noted = NotedRecords(gateway)
    for _ in range(3 if status < 500 else 1):
        served.streams(error, DONE, served.END)
        reply = await asked(gateway, path, stream=True)
        assert reply.status == status
        assert b"No such thing" in reply.body
        served.streams(written(delta(content="so")), error, DONE, served.END)
        reply = await asked(gateway, path, stream=True)
        assert reply.body.index(b"so") < reply.body.index(b"No such thing")
        assert b"[DONE]" not in reply.body
        if path == "/v1/messages":
            last = json.loads(reply.body.strip().split(b"\ndata: ")[-1])["error"]
            assert last["type"] == ("invalid_request_error" if status < 500 else "api_error")
    assert {record.outcome for record in noted.records} != {"served"}
    if status < 500:
        served.says(json.dumps(ANSWER).encode())
        assert (await asked(gateway, path, stream=False)).status == 200


@pytest.mark.parametrize("path", STREAMS)
async def test_an_error_as_a_whole_answer_of_status_200_is_an_error(
    house: OpenGateway, engine: StartEngine, path: str
) -> None:
    served, gateway = await opened(house, engine)
    for error, status in (
        ({"object": "error", "message": "No such thing", "code": 400}, 400),
        ({"error": "No such thing", "error_type": "validation"}, 422),
        ({"error": {"message": "No such thing", "http_status_code": 429}}, 429),
        ({"detail": "No such thing"}, 502),
    ):
        served.says(json.dumps(error).encode())
        reply = await asked(gateway, path, stream=False)
        assert reply.status == status
        assert b"No such thing" in reply.body


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_that_nobody_asked_for_is_no_answer(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other, models={MODEL: {"endpoints": []}})
    served.otherwise(
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + DONE, served.CLOSE)
    )
    other.says(json.dumps(ANSWER).encode())
    reply = await asked(gateway, path, stream=False)
    assert (reply.status, reply.header("content-type")) == (200, "application/json")
    assert b"ho" in reply.body


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("named", [True, False])
async def test_a_compressed_body_is_refused_as_such(
    house: OpenGateway, engine: StartEngine, path: str, named: bool
) -> None:
    served, gateway = await opened(house, engine)
    body = gzip.compress(json.dumps({"model": MODEL, **ASKED[path]}).encode())
    lines = [b"content-encoding: gzip"] if named else []
    reply = await gateway.ask(gateway.post(body, *lines, path=path))
    assert reply.status == 415
    assert b"encoded" in reply.body
    assert not served.calls


@pytest.mark.parametrize("path", STREAMS)
async def test_half_a_surrogate_pair_becomes_a_replacement(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served, gateway = await opened(house, engine)
    served.says(json.dumps(ANSWER).encode())
    body = json.dumps({"model": MODEL, **ASKED[path], "stream": False}).replace('"hi"', r'"hi \ud83d"').encode()
    assert (await gateway.ask(gateway.post(body, path=path))).status == 200
    assert told(served)["messages"][-1]["content"] == "hi \ufffd"


async def test_a_volatile_line_of_claude_code_reaches_no_engine(house: OpenGateway, engine: StartEngine) -> None:
    served, gateway = await opened(house, engine)
    bodies = []
    for nonce in ("aaa", "bbb"):
        served.says(json.dumps(ANSWER).encode())
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.0; cch={nonce};"}
        system = [billing, {"type": "text", "text": "You are Claude Code"}]
        assert (await asked(gateway, "/v1/messages", system=system)).status == 200
        bodies.append(served.calls[-1].body)
    assert bodies[0] == bodies[1]
    assert told(served)["messages"][0] == {"role": "system", "content": "You are Claude Code"}


async def test_the_history_of_codex_is_read_whatever_it_has(house: OpenGateway, engine: StartEngine) -> None:
    served, gateway = await opened(house, engine)
    served.says(json.dumps(ANSWER).encode())
    png = "data:image/png;base64,iVBORw0KGgo="
    history: list[dict[str, Any]] = [
        {"type": "additional_tools", "tools": [{"type": "function", "name": "extra", "parameters": {}}]},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x", "content": None},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** Begin"},
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": png}],
        },
        {"type": "custom_tool_call_output", "call_id": "b", "output": "done"},
        {"type": "tool_search_call", "call_id": "c", "arguments": {"query": "x"}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}},
        {"type": "new_in_2030", "content": {"x": 1}},
        {"type": "message", "role": "user", "content": "and now?"},
    ]
    tools = [{"type": "custom", "name": "apply_patch", "description": "Patches", "format": {"type": "text"}}]
    reply = await asked(gateway, "/v1/responses", input=history, tools=tools)
    assert reply.status == 200
    chat = told(served)
    assert [turn["role"] for turn in chat["messages"]] == ["user", "assistant", "tool", "tool", "user", "user"]
    calls = chat["messages"][1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{}, {"input": "*** Begin"}]
    assert [turn["content"] for turn in chat["messages"][2:4]] == ["seen", "done"]
    assert chat["messages"][4]["content"] == [{"type": "image_url", "image_url": {"url": png}}]
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["apply_patch", "extra"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_that_takes_a_text_is_called_with_one(
    house: OpenGateway, engine: StartEngine, stream: bool
) -> None:
    served, gateway = await opened(house, engine)
    patch = '*** Begin Patch\n+"é"\n*** End Patch'
    call = {"index": 0, "id": "a", "function": {"name": "apply_patch", "arguments": json.dumps({"input": patch})}}
    if stream:
        served.streams(written(delta(tool_calls=[call]), delta("tool_calls")), DONE, served.END)
    else:
        served.says(json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode())
    tools = [{"type": "custom", "name": "apply_patch"}]
    reply = await asked(
        gateway, "/v1/responses", tools=tools, tool_choice={"type": "custom", "name": "apply_patch"}, stream=stream
    )
    text = reply.body.decode().split("data: ")[-1] if stream else reply.body.decode()
    response = json.loads(text)["response"] if stream else json.loads(text)
    [item] = response["output"]
    assert (item["type"], item["call_id"], item["name"], item["input"]) == (
        "custom_tool_call",
        "a",
        "apply_patch",
        patch,
    )
    assert told(served)["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}


@pytest.mark.parametrize("native", [True, False])
async def test_a_stream_of_responses_that_breaks_says_so_twice(
    house: OpenGateway, engine: StartEngine, native: bool
) -> None:
    served = await engine()
    models: dict[str, Any] = {} if native else {MODEL: {"endpoints": []}}
    gateway = await house(served, models=models, routing={"max_retries": 0})
    created = {"type": "response.created", "sequence_number": 0, "response": {"id": "r", "status": "in_progress"}}
    first = b"event: response.created\n" + written(created) if native else written(delta(content="so"))
    served.streams(first, served.CLOSE)
    reply = await asked(gateway, "/v1/responses", stream=True)
    events = [
        json.loads(line.removeprefix("data: ")) for line in reply.body.decode().split("\n") if line.startswith("data")
    ]
    assert [event["type"] for event in events[-2:]] == ["response.failed", "error"]
    assert events[-2]["response"]["error"]["message"] == events[-1]["message"]
    assert isinstance(events[-2]["response"]["error"]["code"], str)


@pytest.mark.parametrize("native", [True, False])
async def test_a_response_that_fails_before_it_began_is_created_for_openais_sdk(
    house: OpenGateway, engine: StartEngine, launched: Launch, native: bool
) -> None:
    gateway = await house(await engine(), models={MODEL: {} if native else {"endpoints": []}})
    managed, client = launched(gateway, "a"), await gateway.client()
    client.send(gateway.post({"input": "hi"}, path="/v1/responses", stream=True))
    await managed.starting()
    gateway.pass_time(16)
    await managed.does_not_start(LoadFailed("no memory"))
    told = (await client.reply()).body.decode().split("\n")
    created, *_, failed, error = [json.loads(line[6:]) for line in told if line.startswith("data: ")]
    assert [created["type"], failed["type"], error["type"]] == ["response.created", "response.failed", "error"]
    assert created["response"]["status"] == "in_progress"
    assert "no memory" in error["message"]


@pytest.mark.parametrize("pinged", [True, False])
async def test_comments_are_no_beginning_of_a_response(house: OpenGateway, engine: StartEngine, pinged: bool) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, routing={"max_retries": 0})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    served.plays(gate, head, *([] if pinged else [chunk(b": keep-alive\n\n")]), served.END)
    client = await gateway.client()
    client.send(gateway.post({"input": "hi"}, path="/v1/responses", stream=True))
    await served.call()
    if pinged:
        gateway.pass_time(16)
    gate.set()
    told = (await client.reply()).body.decode().split("\n")
    types = [json.loads(line[6:])["type"] for line in told if line.startswith("data: ")]
    assert types == ["response.created", "response.failed", "error"]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "hosted tool": ("/v1/responses", {"tools": [{"type": "web_search"}]}, "Only OpenAI runs the tool 'web_search'"),
    "shell": ("/v1/responses", {"tools": [{"type": "local_shell"}]}, "Only OpenAI's models know the tool"),
    "background": ("/v1/responses", {"background": True}, "'background'"),
    "conversation": ("/v1/responses", {"conversation": "c"}, "keeps no conversations"),
    "reference": ("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]}, "send the item itself"),
    "file": ("/v1/responses", {"input": [{"content": [{"type": "input_file"}]}]}, "no content of type 'input_file'"),
    "Anthropic's": (
        "/v1/messages",
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "Only Anthropic runs the tool",
    ),
    "bash": ("/v1/messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "Only Anthropic's models know"),
    "servers": ("/v1/messages", {"mcp_servers": [{"url": "x"}]}, "Only Anthropic asks the servers"),
}


@pytest.mark.parametrize(("path", "fields", "why"), REFUSED.values(), ids=REFUSED)
async def test_what_nobody_can_do_is_refused_by_name(
    house: OpenGateway, engine: StartEngine, path: str, fields: dict[str, Any], why: str
) -> None:
    served, gateway = await opened(house, engine)
    reply = await asked(gateway, path, **fields)
    assert reply.status == 400
    assert why in json.loads(reply.body)["error"]["message"]
    assert not served.calls
