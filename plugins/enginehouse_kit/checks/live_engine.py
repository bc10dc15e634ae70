"""The conformance check of a driver on a real engine."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from enginehouse import Candidate, Continuer, Driver, RequestError
from enginehouse.continuers import AnswerDiffers, read_events
from enginehouse.drivers import (
    DriverSupport,
    EngineClient,
    EngineResponse,
    SupportsContinuation,
    SupportsFigures,
    SupportsLoading,
    support_of,
)
from enginehouse.errors import CannotContinue, UpstreamError
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.expect import expect
from enginehouse_kit.fake_engine import FakeShare
from enginehouse_kit.make import candidate
from enginehouse_kit.plugin_manager import create

_TIMEOUT_S = 120.0
"""The first request of an engine may take minutes, because it compiles."""
_IDLE_S = 30.0
_ROOM_FOR_THE_QUESTION = 200
_CHAT = "/v1/chat/completions"
_HELLO = [{"role": "user", "content": "Say hello."}]


class HttpEngineClient:
    """The client of the engine at ``url``. ``key`` is sent as ``Authorization: Bearer``."""

    def __init__(self, url: str, key: str = "") -> None:
        self._parts = urlsplit(url)
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        """Send a request and read the complete response. Raises ``UpstreamError`` if the engine is unreachable."""
        return await asyncio.to_thread(self.ask, method, path, body)

    def ask(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        """As ``request``, for callers without an event loop."""
        connection, response = self.open(method, path, body)
        try:
            headers = [(name.lower().encode(), value.encode()) for name, value in response.getheaders()]
            return EngineResponse(response.status, headers, response.read())
        finally:
            connection.close()

    def open(
        self, method: str, path: str, body: bytes = b""
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request and read the head of its response."""
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, self._headers)
            return connection, connection.getresponse()
        except OSError as error:
            connection.close()
            raise UpstreamError(f"the engine cannot be reached: {error}") from error


def check_live_engine(it: Driver, url: str, model: str, key: str = "") -> None:
    """Check ``it`` on the engine at ``url``, which serves ``model`` and must have no other requests.

    - It is healthy and lists the model; one that loads models loads and unloads this one.
    - A chat is answered, whole and as a stream that ends with ``[DONE]``, with its usage.
    - ``concurrency`` and ``status`` agree with the engine: a status counts a running request, until its client leaves.
    - The engine serves a ``continuable`` body as it serves the original, and continues a cut stream.
    - What ``metrics_path`` names is a page of Prometheus metrics, or is not there.
    """
    client, known = HttpEngineClient(url, key), support_of(it)
    _check_answers(known, client, model)
    if known.loading is not None:
        _check_loading(known.loading, client, model)
    whole = _chat(client, {"model": model, "messages": _HELLO, "max_tokens": 8, "temperature": 0})
    streamed, ended = _stream(client, {"model": model, "messages": _HELLO, "max_tokens": 8, "temperature": 0})
    expect(ended, "a stream must end with [DONE]")
    expect(streamed == whole, f"a stream must say what the whole answer says: {streamed!r} is not {whole!r}")
    _check_continuable(known.continuation, client, model, whole)
    check_live_continuation(known.continuation, client, model)
    _check_metrics(known.figures, client, model)
    _check_load(known, client, model)


def _check_answers(it: DriverSupport, client: HttpEngineClient, model: str) -> None:
    expect(asyncio.run(it.driver.healthy(client)) is True, "healthy must be true for an engine that runs")
    names = [served.name for served in asyncio.run(it.driver.models(client))]
    expect(model in names, f"models must list '{model}', got {names}")
    most = asyncio.run(it.figures.concurrency(client))
    expect(most is None or most > 0, f"concurrency must be above 0 or None, got {most!r}")


def _check_loading(it: SupportsLoading, client: HttpEngineClient, model: str) -> None:
    def loaded() -> bool:
        return model in {each.name for each in asyncio.run(it.loaded(client))}

    if loaded():
        asyncio.run(it.unload(client, model))
        _until(lambda: not loaded(), f"loaded must not list '{model}' after unload")
    asyncio.run(it.load(client, model))
    _until(loaded, f"loaded must list '{model}' after load")


def _check_continuable(it: SupportsContinuation, client: HttpEngineClient, model: str, whole: str) -> None:
    body = json.dumps({"model": model, "messages": _HELLO, "max_tokens": 8, "temperature": 0, "stream": True}).encode()
    text, ended = _read_stream(client, it.continuable(_CHAT, body))
    expect(ended and text == whole, f"a continuable body must be answered as it is without: {text!r} is not {whole!r}")


def _check_metrics(it: SupportsFigures, client: HttpEngineClient, model: str) -> None:
    path = it.metrics_path.replace("{model}", quote(model, safe=""))
    response = client.ask("GET", path)
    if response.status != 200:
        return
    try:
        found = list(text_string_to_metric_families(response.body.decode()))
    except ValueError as error:
        raise AssertionError(f"{path} must be a page of Prometheus metrics: {error}") from error
    expect(bool(found), f"{path} must have metrics")


def _check_load(it: DriverSupport, client: HttpEngineClient, model: str) -> None:
    """A running request shows in the status, until its client leaves."""

    def running() -> int:
        status = asyncio.run(it.figures.status(client))
        expect(isinstance(status, InstanceStatus), f"status must stay an InstanceStatus, got {status!r}")
        assert status is not None
        return status.num_running_requests + status.num_waiting_requests

    try:
        before = asyncio.run(it.figures.status(client))
    except RequestError as error:
        raise AssertionError(f"status must not fail on an engine that runs: {error}") from error
    if before is None:
        return
    expect(running() == 0, "the engine must have nothing else to do")
    most = _longest_answer(it.driver, client, model)
    long = {"model": model, "messages": _HELLO, "max_tokens": most, "stream": True, "ignore_eos": True}
    connection, response = client.open("POST", _CHAT, json.dumps(long).encode())
    try:
        expect(response.status == 200, f"a stream must begin with 200, got {response.status}")
        response.readline()
        _until(lambda: running() == 1, "status must count a running request")
    finally:
        response.close()  # the connection of an answer that ends with it is the answer's own
        connection.close()
    _until(lambda: running() == 0, "the engine must abort a request whose client has left")


def _longest_answer(it: Driver, client: HttpEngineClient, model: str) -> int:
    """The most tokens that surely fit into the context after a short question."""
    served = next(each for each in asyncio.run(it.models(client)) if each.name == model)
    return (served.capabilities.context_length or 2048) - _ROOM_FOR_THE_QUESTION


def _chat(client: HttpEngineClient, body: dict[str, Any]) -> str:
    response = client.ask("POST", _CHAT, json.dumps(body).encode())
    expect(response.status == 200, f"a chat must be answered with 200, got {response.status}: {response.body[:200]!r}")
    answer = json.loads(response.body)
    used = (answer.get("usage") or {}).get("completion_tokens")
    expect(isinstance(used, int) and 0 < used <= 8, f"usage must count the tokens of the answer, got {used!r}")
    return str(answer["choices"][0]["message"]["content"] or "")  # one that still thinks has none


def _stream(client: HttpEngineClient, body: dict[str, Any]) -> tuple[str, bool]:
    return _read_stream(client, json.dumps(body | {"stream": True}).encode())


def _read_stream(client: HttpEngineClient, body: bytes) -> tuple[str, bool]:
    """The text of a stream, and whether it ended with ``[DONE]``."""
    response = client.ask("POST", _CHAT, body)
    expect(response.status == 200, f"a stream must begin with 200, got {response.status}: {response.body[:200]!r}")
    events = [line[6:] for line in response.body.decode().splitlines() if line.startswith("data: ")]
    ended = bool(events) and events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", [])]
    return "".join(delta.get("content") or "" for delta in deltas), ended


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _IDLE_S
    while not holds():
        expect(time.monotonic() < end, what)
        time.sleep(0.02)


_LIMIT = 16
_PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Say hello."}]},
    "/v1/completions": {"prompt": "Say hello."},
}


def check_live_continuation(it: SupportsContinuation, client: EngineClient, model: str) -> None:
    """Cut streams of ``model`` in the middle, and have the same engine continue them, by tokens and by text.

    The rest must begin where the client's text ends, and end as a stream does. That it says the same is not checked:
    other engines round otherwise. A driver that raises ``CannotContinue`` passes.
    """
    continuer, chosen = create("continuer", "continuation"), candidate(model=model)
    for path, prompt in _PROMPTS.items():
        body = json.dumps({"model": model, **prompt, "max_tokens": _LIMIT, "temperature": 0, "stream": True}).encode()
        for tries in (1, 2):
            asyncio.run(_check_cut(continuer, it, client, chosen, path, body, tries))


async def _check_cut(
    continuer: Continuer,
    it: SupportsContinuation,
    client: EngineClient,
    chosen: Candidate,
    path: str,
    body: bytes,
    tries: int,
) -> None:
    kept, asked = continuer.keep(path, body, it, FakeShare)
    whole = await client.request("POST", path, asked)
    if whole.status != 200 or kept is None:  # not every engine has /v1/completions; chats are checked elsewhere
        return
    kept.take(_first_half(whole))
    rest = continuer.rest(kept, "continue")
    try:
        for _ in range(tries):
            question = await rest.ask(chosen, it, client)
    except CannotContinue:
        return
    if question.way == "restart":
        return
    how, events = f"the continuation of {path} by {question.way}", b""
    answer = await client.request("POST", question.path, question.body)
    expect(answer.status == 200, f"{how} must be answered with 200, got {answer.status}: {answer.body[:200]!r}")
    assert question.translator is not None
    try:
        events = b"".join(question.translator.translate(answer.body))
    except (AnswerDiffers, ValueError) as error:
        raise AssertionError(f"{how} must begin where the text ends: {answer.body[:300]!r}") from error
    expect(kept.ended and b'"finish_reason":"' in events, f"{how} must end with a finish reason and [DONE]")
    expect(events.count(b"data:") > 2, f"{how} must bring the rest of the answer")


def _first_half(answer: EngineResponse) -> bytes:
    ends = [event.end for event in read_events(answer.body)]
    return answer.body[: ends[len(ends) // 2]]
