"""Anthropic's own SDK, in front of engines that speak only OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

if TYPE_CHECKING:
    import anthropic  # takes two seconds of each process of ``make test``

HELLO: Any = [{"role": "user", "content": "Hello, engine"}]
WEATHER: Any = {
    "name": "weather",
    "description": "tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client:
        yield client


def test_a_message_and_its_stream_say_the_same(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model="m", max_tokens=8, system="Be brief", messages=HELLO)
    with client.messages.stream(model="m", max_tokens=8, system="Be brief", messages=HELLO) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert whole.stop_reason == streamed.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == streamed.usage.output_tokens == 8
    assert whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0) > 2


def test_the_tokens_of_a_prompt_are_those_that_a_message_has(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="m", messages=HELLO).input_tokens
    usage = client.messages.create(model="m", max_tokens=1, messages=HELLO).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize("streamed", [False, True])
def test_tools_are_called_and_their_results_go_back(client: anthropic.Anthropic, streamed: bool) -> None:
    asked: Any = {"model": "m", "max_tokens": 60, "tools": [WEATHER], "messages": HELLO, "tool_choice": {"type": "any"}}
    if streamed:
        with client.messages.stream(**asked) as stream:
            message: Any = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    (call,) = message.content
    assert (message.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "weather")
    assert isinstance(call.input["city"], str)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    turns = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    again = client.messages.create(model="m", max_tokens=4, tools=[WEATHER], messages=turns)
    assert again.usage.output_tokens == 4


@pytest.mark.parametrize("streamed", [False, True])
def test_the_tool_runner_sends_the_whole_conversation(client: anthropic.Anthropic, streamed: bool) -> None:
    """It first asks for a thread that the server would keep, and then sends only what is new."""
    import anthropic

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """tells the weather"""
        return f"sunny in {city}"

    asked: Any = {"model": "m", "max_tokens": 60, "tool_choice": {"type": "any"}, "messages": HELLO}
    runner: Any = client.beta.messages.tool_runner(**asked, tools=[weather], max_iterations=2, stream=streamed)
    found = [each.get_final_message() if streamed else each for each in runner]
    first, second = [each.usage.input_tokens + (each.usage.cache_read_input_tokens or 0) for each in found]
    assert {each.content[0].name for each in found} == {"weather"}
    assert second > first


def test_errors_are_anthropics(client: anthropic.Anthropic) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError, match="Model 'none' not found"):
        client.messages.create(model="none", max_tokens=1, messages=HELLO)
    document: Any = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}
    with pytest.raises(anthropic.BadRequestError, match="no content of type 'document'"):
        client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": [document]}])
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(anthropic.BadRequestError, match="Only Anthropic runs the tool"):
        client.messages.create(model="m", max_tokens=1, messages=HELLO, tools=[search])


def test_answers_say_which_protocol_they_were_asked_in(client: anthropic.Anthropic) -> None:
    raw = client.messages.with_raw_response.create(model="m", max_tokens=1, messages=HELLO)
    assert raw.headers["x-enginehouse-protocol"] == "messages"
    assert raw.headers["x-enginehouse-backend"] in ("one", "other")


class MessagesEngine(BaseHTTPRequestHandler):
    """Speaks Anthropic's protocol itself. ``bodies``: those that it got."""

    bodies: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        content = [{"type": "text", "text": "Hi"}]
        ending = {"stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1}}
        self._answer({"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": content, **ending})

    def _answer(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_engine_that_speaks_the_protocol_gets_the_bytes_of_the_client() -> None:
    import anthropic

    with ThreadingHTTPServer(("127.0.0.1", 0), MessagesEngine) as engine, ThreadPoolExecutor(1) as pool:
        pool.submit(engine.serve_forever)
        try:
            url = f"http://127.0.0.1:{engine.server_port}"
            config = f'[backends.one]\nurl = "{url}"\nmodels = ["m"]\n[models.m]\nendpoints = ["/v1/messages"]\n'
            with RunningGateway(config) as gateway, anthropic.Anthropic(base_url=gateway.url, api_key="none") as client:
                gateway.until_health(one="healthy")
                raw = client.messages.with_raw_response.create(model="m", max_tokens=1, messages=HELLO)
        finally:
            engine.shutdown()
    assert raw.headers["x-enginehouse-protocol"] == "native"
    assert json.loads(MessagesEngine.bodies[0]) == {"model": "m", "max_tokens": 1, "messages": HELLO}


def test_no_stream_breaks_when_an_engine_breaks_its_streams(
    client: anthropic.Anthropic, engines: tuple[SimEngine, SimEngine]
) -> None:
    whole = client.messages.create(model="m", max_tokens=30, messages=HELLO).content[0].text  # type: ignore[union-attr]
    engines[0].fault("drop", after=5, count=20)
    try:

        def ask(_: int) -> Any:
            with client.messages.stream(model="m", max_tokens=30, messages=HELLO) as stream:
                return stream.get_final_message()

        with ThreadPoolExecutor(20) as pool:
            messages = list(pool.map(ask, range(20)))
    finally:
        engines[0].clear()
    assert {message.content[0].text for message in messages} == {whole}
    assert {message.usage.output_tokens for message in messages} == {30}


def test_models_are_listed_in_anthropics_form(client: anthropic.Anthropic) -> None:
    (listed,) = client.models.list()
    assert (listed.type, listed.id, listed.display_name) == ("model", "m", "m")
    assert client.models.retrieve("m") == listed
    assert listed.created_at.tzinfo is not None
    assert listed.lifecycle == "active"
    assert listed.max_input_tokens
