"""One conversation of an agent through each dialect, in front of real engines that are asked only for chats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ollama
import openai
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support.openai_clients import openai_client
from tests.support.real_gateways import VLLM_START_S, llama_server, llama_table, ready_gateway, vllm, vllm_table

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NAMES = ("weather", "time", "news")
SYSTEM = "You help travellers"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
BLIND = r"multimodal|image|vision"
ROME: dict[str, Any] = {"city": "Rome"}


@pytest.fixture(scope="module", params=["llama-server", pytest.param("vllm", marks=pytest.mark.slow)])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    if request.param == "vllm":
        engine, timeout = vllm(tmp_path_factory.mktemp("tiny-hf")), float(VLLM_START_S)
        tools = 'enable_auto_tool_choice = true, tool_call_parser = "hermes"'
        table = vllm_table("tiny", engine, options=tools, preload="true", endpoints="[]")
    else:
        engine, timeout = llama_server(), 60.0
        table = llama_table("tiny", engine, context_length="4096", preload="true", endpoints="[]")
    with ready_gateway(engine, table, "tiny", timeout=timeout) as gateway:
        yield gateway


def test_anthropics_messages(gateway: RunningGateway) -> None:
    import anthropic  # takes a second of each process of ``make test``

    tools: Any = [{"name": name, "description": name, "input_schema": SCHEMA} for name in NAMES]
    calls: Any = [{"type": "tool_use", "id": f"c{n}", "name": name, "input": ROME} for n, name in enumerate(NAMES[:2])]
    results: Any = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "sunny"} for n in range(2)]
    turns: Any = [
        {"role": "user", "content": "How is Rome?"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "two tools", "signature": ""}, *calls]},
        {"role": "user", "content": [*results, {"type": "text", "text": "And now?"}]},
    ]
    asked: Any = {
        "model": "tiny",
        "max_tokens": 8,
        "extra_body": {"temperature": 0},
        "system": SYSTEM,
        "tools": tools,
        "messages": turns,
    }
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client:
        raw = client.messages.with_raw_response.create(**asked)
        assert raw.headers["x-enginehouse-protocol"] == "messages"
        whole = raw.parse()
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        with client.messages.stream(**asked) as left:
            next(iter(left))
        again = client.messages.create(**asked)
    messages: list[Any] = [whole, streamed, again]
    texts = ["".join(block.text for block in each.content if block.type == "text") for each in messages]
    assert texts[0] == texts[1] == texts[2]
    assert whole.usage.output_tokens == streamed.usage.output_tokens == 8


def test_openais_responses(gateway: RunningGateway) -> None:
    tools: Any = [{"type": "function", "name": name, "description": name, "parameters": SCHEMA} for name in NAMES]
    calls = [
        {"type": "function_call", "call_id": f"c{n}", "name": name, "arguments": '{"city": "Rome"}'}
        for n, name in enumerate(NAMES[:2])
    ]
    results = [{"type": "function_call_output", "call_id": f"c{n}", "output": "sunny"} for n in range(2)]
    items: Any = [
        {"role": "user", "content": "How is Rome?"},
        *calls,
        *results,
        {"role": "user", "content": "And now?"},
    ]
    asked: Any = {"model": "tiny", "max_output_tokens": 8, "temperature": 0, "instructions": SYSTEM, "tools": tools}
    with openai_client(gateway.url) as client:
        whole = client.responses.create(input=items, **asked)
        with client.responses.stream(input=items, **asked) as stream:
            events = list(stream)
    last: Any = events[-1]
    assert last.response.output_text == whole.output_text
    assert whole.usage is not None
    assert whole.usage.output_tokens == 8


def test_ollamas_chat(gateway: RunningGateway) -> None:
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    calls: Any = [{"function": {"name": name, "arguments": ROME}} for name in NAMES[:2]]
    turns: Any = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "How is Rome?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "sunny", "tool_name": "weather"},
        {"role": "tool", "content": "noon", "tool_name": "time"},
        {"role": "user", "content": "And now?"},
    ]
    options: Any = {"num_predict": 8, "temperature": 0}
    client = ollama.Client(host=gateway.url)
    whole = client.chat(model="tiny", messages=turns, tools=tools, options=options)
    pieces = list(client.chat(model="tiny", messages=turns, tools=tools, options=options, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert whole.eval_count == pieces[-1].eval_count == 8
    client._client.close()


@pytest.mark.parametrize("stream", [False, True])
def test_an_image_that_the_model_cannot_see_is_told_in_each_dialect(gateway: RunningGateway, stream: bool) -> None:
    import anthropic

    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    result: Any = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": source}]}
    use: Any = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    turns: Any = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client,
        pytest.raises(anthropic.APIError, match=BLIND),
    ):
        list(client.messages.create(model="tiny", max_tokens=8, messages=turns, stream=stream))
    seen = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    items: Any = [
        {"role": "user", "content": "Look"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [seen]},
    ]
    with openai_client(gateway.url) as responses, pytest.raises(openai.APIError, match=BLIND):
        list(responses.responses.create(model="tiny", input=items, stream=stream))
    lines: Any = ollama.Client(host=gateway.url)
    with pytest.raises(ollama.ResponseError, match=BLIND):
        list(lines.chat(model="tiny", messages=[{"role": "user", "content": "Look", "images": [PNG]}], stream=stream))
    lines._client.close()
    assert gateway.status()["backends"][0]["health"] == "healthy"


def test_input_that_the_model_cannot_take_leaves_the_engine_in_service(gateway: RunningGateway) -> None:
    heard: Any = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    with openai_client(gateway.url) as client:
        for _ in range(5):  # as a client does that tries again after a 500
            with pytest.raises(openai.APIError, match=r"multimodal|audio"):
                client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": [heard]}])
    assert gateway.status()["backends"][0]["health"] == "healthy"


def test_a_prompt_that_is_too_long_is_told_in_each_dialect(gateway: RunningGateway) -> None:
    import anthropic

    long = "word " * 20_000
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client,
        pytest.raises(anthropic.BadRequestError, match="prompt is too long"),
    ):
        client.messages.create(model="tiny", max_tokens=8, messages=[{"role": "user", "content": long}])
    with openai_client(gateway.url) as responses, pytest.raises(Exception, match="context length"):
        responses.responses.create(model="tiny", input=long)
    lines = ollama.Client(host=gateway.url)
    with pytest.raises(ollama.ResponseError):
        lines.chat(model="tiny", messages=[{"role": "user", "content": long}])
    lines._client.close()
