from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support.openai_clients import async_openai_client, openai_client

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello, engine"}]
IMAGE: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]


@pytest.fixture(scope="module")
def real_engine() -> Iterator[SimEngine]:
    with SimEngine("llama3:8b", "org/embedder:v1", "impatient", context_length=200, vision=False) as engine:
        yield engine


@pytest.fixture
def engine(real_engine: SimEngine) -> Iterator[SimEngine]:
    real_engine.clear()
    yield real_engine
    real_engine.clear()


@pytest.fixture(scope="module")
def gateway(real_engine: SimEngine) -> Iterator[RunningGateway]:
    config = f"""
[server]
max_body = "64KiB"

[auth]
keys = [
  {{ name = "admin", key = "k-admin", admin = true }},
  {{ name = "embeds", key = "k-embeds", models = ["org/*"] }},
  {{ name = "rare", key = "k-rare", requests_per_minute = 1 }},
]

[checks]
failures = 1000  # faults are for one test each

[backends.gpu-1]
driver = "sim"
url = "{real_engine.url}"
models = ["llama3:8b", "org/embedder:v1"]

[backends.impatient]
driver = "sim"
url = "{real_engine.url}"
models = ["impatient"]
timeouts = {{ first_byte = "200ms", stall = "200ms" }}

[backends.dead]
url = "http://127.0.0.1:9"
models = ["dead"]

[routing.aliases]
"gpt-4" = "llama3:8b"
"gpt-5" = "llama3:405b"

[routing.fallbacks]
claude = ["mistral:7b", "llama3:8b"]
lost = ["mistral:7b", "gone"]
"""
    with RunningGateway(config, key="k-admin") as gateway:
        gateway.until_health(**{"gpu-1": "healthy", "impatient": "healthy", "dead": "unhealthy"})
        yield gateway


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with openai_client(gateway.url, "k-admin") as client:
        yield client


def test_a_chat_has_its_text_usage_and_origin(client: openai.OpenAI, engine: SimEngine) -> None:
    raw = client.chat.completions.with_raw_response.create(model="llama3:8b", messages=HELLO)
    answer = raw.parse()

    assert len((answer.choices[0].message.content or "").split()) == 16
    assert answer.usage == CompletionUsage(prompt_tokens=10, completion_tokens=16, total_tokens=26)
    told = {name: raw.headers[f"x-enginehouse-{name}"] for name in ("backend", "model", "reason")}
    assert told == {"backend": "gpu-1", "model": "llama3:8b", "reason": "match"}
    assert raw.headers["x-request-id"] == engine.requests()[0].header("x-request-id")


def test_a_chat_stream_is_the_same_text_and_usage(client: openai.OpenAI, engine: SimEngine) -> None:
    whole = client.chat.completions.create(model="llama3:8b", messages=HELLO)
    *said, last = client.chat.completions.create(
        model="llama3:8b", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )

    assert "".join(chunk.choices[0].delta.content or "" for chunk in said) == whole.choices[0].message.content
    assert said[-1].choices[0].finish_reason == "length"
    assert (last.choices, last.usage) == ([], whole.usage)


async def test_the_asynchronous_client_works_as_well(gateway: RunningGateway, engine: SimEngine) -> None:
    async with async_openai_client(gateway.url, "k-admin") as client:
        stream = await client.chat.completions.create(model="llama3:8b", messages=HELLO, stream=True)
        chunks = [chunk async for chunk in stream]

    assert chunks[-1].choices[0].finish_reason == "length"


def test_completions_answer_at_once_and_as_a_stream(client: openai.OpenAI, engine: SimEngine) -> None:
    whole = client.completions.create(model="llama3:8b", prompt="Once", max_tokens=5).choices[0].text
    chunks = client.completions.create(model="llama3:8b", prompt="Once", max_tokens=5, stream=True)

    assert len(whole.split()) == 5
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole


def test_responses_answer_at_once_and_as_a_stream(client: openai.OpenAI, engine: SimEngine) -> None:
    whole = client.responses.create(model="llama3:8b", input="Hello")
    events = list(client.responses.create(model="llama3:8b", input="Hello", stream=True))

    assert whole.status == "incomplete"  # the answer has the engine's default length
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.incomplete"


def test_embeddings_come_through(client: openai.OpenAI, engine: SimEngine) -> None:
    answer = client.embeddings.create(model="org/embedder:v1", input=["one", "two"])

    first, second = (item.embedding for item in answer.data)
    assert first != second
    assert sum(figure * figure for figure in first) == pytest.approx(1, abs=1e-3)


def test_models_are_listed_and_found_by_name(client: openai.OpenAI) -> None:
    listed = {model.id for model in client.models.list()}

    assert listed == {"llama3:8b", "org/embedder:v1", "gpt-4", "impatient", "dead"}
    assert client.models.retrieve("org/embedder:v1").id == "org/embedder:v1"
    assert client.models.retrieve("gpt-4").model_dump()["root"] == "llama3:8b"
    with pytest.raises(openai.NotFoundError, match="Model 'gpt-5' not found"):
        client.models.retrieve("gpt-5")


@pytest.mark.parametrize(("asked", "reason"), [("gpt-4", "alias"), ("claude", "fallback")])
def test_another_name_is_all_that_changes_in_the_body(
    gateway: RunningGateway, engine: SimEngine, http: httpx.Client, asked: str, reason: str
) -> None:
    sent = b'{"model" :  "%s",\n "messages":[{"role":"user","content":"\\u0048i"}], "x": 1.00, "max_tokens": 1}'
    headers = {"authorization": "Bearer k-admin", "content-type": "application/json"}

    answer = http.post(f"{gateway.url}/v1/chat/completions", content=sent % asked.encode(), headers=headers)

    assert (answer.status_code, answer.headers["x-enginehouse-reason"]) == (200, reason)
    assert engine.requests()[0].raw == sent % b"llama3:8b"


@pytest.mark.parametrize(
    ("model", "messages", "error", "code", "words"),
    [
        ("nothing", HELLO, openai.NotFoundError, "model_not_found", "Model 'nothing' not found"),
        ("gpt-5", HELLO, openai.NotFoundError, "model_not_found", "'gpt-5' not found: it is an alias of 'llama3:405b'"),
        ("llama3:8b", IMAGE, openai.BadRequestError, "capability_mismatch", "vision"),
        (
            "llama3:8b",
            [{"role": "user", "content": "x" * 900}],
            openai.BadRequestError,
            "context_length_exceeded",
            "context_length",
        ),
        ("", HELLO, openai.BadRequestError, "invalid_request", "'model' is empty"),
        ("llama3:8b", "text", openai.BadRequestError, "invalid_request", "'messages' is of the wrong type"),
        ("dead", HELLO, openai.InternalServerError, "no_healthy_backend", "No healthy backend available"),
        ("lost", HELLO, openai.InternalServerError, "fallback_exhausted", "lost, mistral:7b, gone"),
    ],
)
def test_a_refusal_is_the_right_exception(
    client: openai.OpenAI, model: str, messages: Any, error: type[openai.APIStatusError], code: str, words: str
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(model=model, messages=messages)

    assert caught.value.code == code
    assert words in caught.value.message
    assert (caught.value.response.headers.get("retry-after") is not None) is (caught.value.status_code == 503)


def test_keys_are_asked_for_and_limited(gateway: RunningGateway, engine: SimEngine) -> None:
    def chat(key: str) -> None:
        with openai_client(gateway.url, key) as client:
            client.chat.completions.create(model="llama3:8b", messages=HELLO)

    with pytest.raises(openai.AuthenticationError, match="Unknown API key"):
        chat("k-wrong")
    with pytest.raises(openai.PermissionDeniedError, match="Key 'embeds' may not use model 'llama3:8b'"):
        chat("k-embeds")
    chat("k-rare")
    with pytest.raises(openai.RateLimitError, match="Key 'rare' is over its rate limit") as limited:
        chat("k-rare")
    assert 0 < int(limited.value.response.headers["retry-after"]) <= 61
    with openai_client(gateway.url, "k-embeds") as client:
        assert {model.id for model in client.models.list()} == {"org/embedder:v1"}
    assert len(engine.requests()) == 1


def test_a_body_that_is_too_large_is_refused(client: openai.OpenAI, engine: SimEngine) -> None:
    with pytest.raises(openai.APIStatusError, match=r"server\.max_body") as caught:
        client.chat.completions.create(model="llama3:8b", messages=[{"role": "user", "content": "x" * 70_000}])

    assert (caught.value.status_code, engine.requests()) == (413, [])


@pytest.mark.parametrize("fault", [{"kind": "drop", "after": 3}, {"kind": "malformed", "after": 3, "framing": True}])
def test_a_stream_that_breaks_never_looks_complete(
    client: openai.OpenAI, engine: SimEngine, fault: dict[str, Any]
) -> None:
    engine.fault(**fault)
    with pytest.raises(openai.APIError, match="Backend 'gpu-1' broke off"):
        list(client.chat.completions.create(model="llama3:8b", messages=HELLO, stream=True))


def test_a_stream_that_breaks_has_an_error_event_and_no_done(
    gateway: RunningGateway, engine: SimEngine, http: httpx.Client
) -> None:
    engine.fault("drop", after=2)
    body = {"model": "llama3:8b", "messages": HELLO, "stream": True}

    text = http.post(f"{gateway.url}/v1/chat/completions", json=body, headers={"authorization": "Bearer k-admin"}).text

    *_, last, empty = text.split("\n\n")
    name, data = last.split("\n")
    assert (name, empty) == ("event: error", "")
    assert json.loads(data.removeprefix("data: "))["error"]["code"] == "upstream_error"
    assert "[DONE]" not in text


def test_an_answer_that_breaks_in_the_middle_is_no_answer(client: openai.OpenAI, engine: SimEngine) -> None:
    engine.fault("drop", after=1)
    with pytest.raises(openai.InternalServerError, match="gpu-1"):  # held until it is whole, so the client has nothing
        client.chat.completions.create(model="llama3:8b", messages=HELLO)


@pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "malformed", "framing": True}, {"kind": "refuse"}])
def test_an_engine_that_fails_before_its_first_byte_is_a_502(
    client: openai.OpenAI, gateway: RunningGateway, engine: SimEngine, fault: dict[str, Any]
) -> None:
    engine.fault(**fault)
    with pytest.raises(openai.InternalServerError, match="gpu-1") as caught:
        client.chat.completions.create(model="llama3:8b", messages=HELLO)
    engine.clear()

    assert (caught.value.status_code, caught.value.code) == (502, "upstream_error")


def test_an_engine_that_hangs_is_a_504_and_is_cancelled(
    client: openai.OpenAI, gateway: RunningGateway, engine: SimEngine
) -> None:
    engine.fault("hang")
    with pytest.raises(openai.InternalServerError, match=r"Backend 'impatient' .* within 0\.2 s") as caught:
        client.chat.completions.create(model="impatient", messages=HELLO)

    assert (caught.value.status_code, caught.value.code) == (504, "upstream_timeout")
    gateway.until(lambda _: engine.requests()[0].status == "aborted")


def test_an_engine_that_stalls_ends_the_stream_with_an_error(client: openai.OpenAI, engine: SimEngine) -> None:
    engine.fault("slow", per_chunk="1h")
    with pytest.raises(openai.APIError, match=r"Backend 'impatient' .* within 0\.2 s"):
        list(client.completions.create(model="impatient", prompt="Hello", stream=True))


def test_an_engines_own_refusal_comes_through_as_it_is(client: openai.OpenAI, engine: SimEngine) -> None:
    body = {"error": {"message": "no such adapter", "type": "t", "param": "lora", "code": 77}}
    engine.fault("error", status=422, body=body)

    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.chat.completions.create(model="llama3:8b", messages=HELLO)

    assert caught.value.body == body["error"]


def test_a_client_that_disconnects_stops_the_engine(
    client: openai.OpenAI, gateway: RunningGateway, engine: SimEngine
) -> None:
    engine.fault("slow", per_chunk="1h")
    stream = client.chat.completions.create(model="llama3:8b", messages=HELLO, stream=True)
    next(stream)
    assert gateway.status()["requests"] == 1
    stream.close()

    gateway.until(lambda status: status["requests"] == 0)
    assert all(backend["pending"] == 0 for backend in gateway.status()["backends"])
    gateway.until(lambda _: engine.running() == 0)
    gateway.until(lambda _: engine.requests()[0].status == "aborted")
