"""Clients that give up after three seconds of silence, and a prompt that takes longer to read, in every dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import ollama
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

LIMIT_S = 3.0
HELLO: Any = [{"role": "user", "content": "Hello, engine"}]
SIX: Any = {"num_predict": 6}
Ask = Callable[[str], str]


def openai_client(url: str, path: str) -> Any:
    import openai  # takes long to import

    http = openai.DefaultHttpxClient(trust_env=False, verify=False)
    return openai.OpenAI(base_url=f"{url}{path}", api_key="none", max_retries=0, timeout=LIMIT_S, http_client=http)


def chats(path: str) -> Ask:
    def ask(url: str) -> str:
        with openai_client(url, path) as client:
            stream = client.chat.completions.create(model="m", messages=HELLO, max_tokens=6, stream=True)
            return "".join(choice.delta.content or "" for event in stream for choice in event.choices)

    return ask


def completions(url: str) -> str:
    with openai_client(url, "/v1") as client:
        stream = client.completions.create(model="m", prompt="Hello, engine", max_tokens=6, stream=True)
        return "".join(choice.text for event in stream for choice in event.choices)


def responses(url: str) -> str:
    with openai_client(url, "/v1") as client:
        stream = client.responses.create(model="m", input=HELLO, max_output_tokens=16, stream=True)
        return "".join(event.delta for event in stream if event.type == "response.output_text.delta")


def azure(url: str) -> str:
    import openai

    http = openai.DefaultHttpxClient(trust_env=False, verify=False)
    asked: Any = {"api_key": "none", "api_version": "2024-10-21", "max_retries": 0, "http_client": http}
    with openai.AzureOpenAI(azure_endpoint=url, timeout=LIMIT_S, **asked) as client:
        stream = client.chat.completions.create(model="m", messages=HELLO, max_tokens=6, stream=True)
        return "".join(choice.delta.content or "" for event in stream for choice in event.choices)


def messages(url: str) -> str:
    import anthropic

    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=LIMIT_S) as client,
        client.messages.stream(model="m", max_tokens=6, messages=HELLO) as stream,
    ):
        return "".join(stream.text_stream)


def ollama_chat(url: str) -> str:
    client = ollama.Client(host=url, timeout=LIMIT_S)
    try:
        pieces = list(client.chat(model="m", messages=HELLO, options=SIX, stream=True))
        return "".join(piece.message.content or "" for piece in pieces)
    finally:
        client._client.close()


def ollama_prompt(url: str) -> str:
    client = ollama.Client(host=url, timeout=LIMIT_S)
    try:
        return "".join(
            piece.response or "" for piece in client.generate(model="m", prompt="Hi", options=SIX, stream=True)
        )
    finally:
        client._client.close()


DIALECTS: Mapping[str, Ask] = {
    "chats": chats("/v1"),
    "completions": completions,
    "responses": responses,
    "azure": azure,
    "lm studio": chats("/api/v0"),
    "messages": messages,
    "ollama chat": ollama_chat,
    "ollama generate": ollama_prompt,
}


@pytest.fixture(params=[6, pytest.param(20, marks=pytest.mark.slow)])
def urls(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A gateway with heartbeats and one without, in front of an engine that reads for so many seconds."""
    with ExitStack() as stack:
        engine = stack.enter_context(SimEngine("m", ttft=f"{request.param}s", max_num_seqs=64))
        backend = f'[backends.a]\ndriver = "openai"\nurl = "{engine.url}"\nmodels = ["m"]\n'
        gateways = [
            stack.enter_context(RunningGateway(f'{backend}[streams]\nheartbeat = "{heartbeat}"\n'))
            for heartbeat in ("300ms", "0s")
        ]
        for gateway in gateways:
            gateway.until_health(a="healthy")
        yield gateways[0].url, gateways[1].url


def test_no_client_gives_up_while_a_long_prompt_is_read(urls: tuple[str, str]) -> None:
    with ThreadPoolExecutor(2 * len(DIALECTS)) as threads:
        heard, unheard = ({name: threads.submit(ask, url) for name, ask in DIALECTS.items()} for url in urls)
    assert {name: error for name, each in heard.items() if (error := each.exception()) is not None} == {}
    assert all(each.result() for each in heard.values())
    gave_up = {name: type(each.exception()).__name__ for name, each in unheard.items()}
    assert set(gave_up.values()) == {"APITimeoutError", "ReadTimeout"}, gave_up
