"""Requests to an engine whose answers are timed, event by event, and what the engine says about itself."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import httptools
import msgspec

from enginehouse import ConfigError, GatewayError
from enginehouse_sim.simulator.steps.profile import EngineLimits

_TIMEOUT_S = 300.0


class EngineAddress(msgspec.Struct, frozen=True):
    """An engine's or gateway's address, the model to ask for, and the key of the API.

    Raises ``ConfigError`` for what is not an address.
    """

    url: str
    model: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise ConfigError(f"{self.url!r} is not the address of an engine", remedy="write http://HOST:PORT")


class _ChoiceOfStream(msgspec.Struct):
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _StreamEvent(msgspec.Struct):
    """The part of a stream's event that counts tokens."""

    choices: list[_ChoiceOfStream] = msgspec.field(default_factory=list)
    usage: _Usage | None = None


class TimedStream:
    """An answer and its times, in seconds of ``perf_counter``. The parser of its response calls ``on_...``.

    ``sent``: of the request. ``events``: of each event that carries tokens. ``made``: the engine's count of tokens at
    each event; empty if it tells none. ``tokens``: of the whole answer, by the engine's count; 0 until it ends.
    ``body``: of an answer that is not a stream.
    """

    def __init__(self, on_event: Callable[[], None] | None = None) -> None:
        self.sent = 0.0
        self.events: list[float] = []
        self.made: list[int] = []
        self.tokens = self.status = 0
        self.body = bytearray()
        self.is_stream = self.is_whole = False
        self._on_event = on_event
        self._pending = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.is_stream |= name.lower() == b"content-type" and value.startswith(b"text/event-stream")

    def on_body(self, data: bytes) -> None:
        if not self.is_stream:
            self.body += data
            return
        now = perf_counter()
        *events, self._pending = (self._pending + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            self._note(event, now)

    def on_message_complete(self) -> None:
        self.is_whole = True

    def _note(self, text: bytes, now: float) -> None:
        payload = text.partition(b"data:")[2].strip()
        if not payload.startswith(b"{"):
            return
        event = msgspec.json.decode(payload, type=_StreamEvent)
        if event.usage is not None:
            self.tokens = event.usage.completion_tokens or self.tokens
        if any(choice.text or choice.finish_reason is None for choice in event.choices):
            self.events.append(now)
            if event.usage is not None:
                self.made.append(event.usage.completion_tokens)
            if self._on_event is not None:
                self._on_event()


async def stream(address: EngineAddress, body: Mapping[str, Any], timed: TimedStream | None = None) -> TimedStream:
    """Ask for a completion as a stream, and read it to its end. Raises ``GatewayError``.

    ``timed`` follows the answer; by default a new one.
    """
    timed = timed or TimedStream()
    await _ask(address, "POST /v1/completions", msgspec.json.encode({**body, "model": address.model}), timed)
    if timed.status != 200:
        raise GatewayError(f"{address.url} answered {timed.status}: {timed.body[:300].decode('utf-8', 'replace')}")
    return timed


async def get(address: EngineAddress, path: str) -> bytes:
    """The body of a page; empty if there is no such page. Raises ``GatewayError`` if nothing answers."""
    timed = TimedStream()
    await _ask(address, f"GET {path}", b"", timed)
    return bytes(timed.body) if timed.status == 200 else b""


async def _ask(address: EngineAddress, line: str, body: bytes, timed: TimedStream) -> None:
    parts, (method, _, path) = urlsplit(address.url), line.partition(" ")
    head = f"{method} {parts.path.rstrip('/')}{path} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n"
    head += f"authorization: Bearer {address.key}\r\n" if address.key else ""
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    try:
        await asyncio.wait_for(_exchange(address, f"{head}\r\n".encode() + body, timed), _TIMEOUT_S)
    except (OSError, asyncio.TimeoutError, httptools.HttpParserError) as error:
        raise GatewayError(f"{address.url} cannot be measured: {error or type(error).__name__}") from None


async def _exchange(address: EngineAddress, request: bytes, timed: TimedStream) -> None:
    parts = urlsplit(address.url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if secure else 80), ssl=secure)
    parser = httptools.HttpResponseParser(timed)
    try:
        timed.sent = perf_counter()
        writer.write(request)
        while not timed.is_whole:
            data = await reader.read(65536)
            if not data:
                raise ConnectionError("the answer broke off")
            parser.feed_data(data)
        timed.status = parser.get_status_code()
    finally:
        writer.close()


_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_TOKENS = 24


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an engine.

    ``kind``: ``llamacpp``, ``vllm``, ``sglang``, or ``openai`` for any other. ``tokens_per_event``: of its streams.
    """

    kind: str
    limits: EngineLimits
    tokens_per_event: float = 1.0


def body_for(kind: str, prompt: list[int], max_tokens: int, *, caches: bool = False) -> dict[str, Any]:
    """The body of a completion that does not end early. A ``llamacpp`` engine is asked not to cache it unless it
    ``caches``, which leaves that to its settings.

    vLLM and SGLang count the tokens in each event: they put several into one when many streams run.
    """
    body: dict[str, Any] = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0,
    }
    if kind == "llamacpp" and not caches:
        body["cache_prompt"] = False
    elif kind in ("vllm", "sglang"):
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return body


async def engine_facts(address: EngineAddress, prompt: list[int]) -> EngineFacts:
    """Ask the engine; ``prompt``: of a request that counts the tokens in an event. Raises ``GatewayError``."""
    models = _json(await get(address, "/v1/models")).get("data") or []
    model = next((model for model in models if model.get("id") == address.model), None)
    if model is None:
        names = ", ".join(str(model.get("id")) for model in models) or "none"
        raise GatewayError(f"{address.url} has no model '{address.model}'; it has {names}")
    kind, limits = await _limits(address, model)
    timed = await stream(address, body_for(kind, prompt, _TOKENS))
    if len(timed.events) < 2:
        raise GatewayError(f"{address.url} streams no tokens one by one, so nothing can be measured")
    return EngineFacts(
        kind=kind, limits=limits, tokens_per_event=max(1.0, (timed.tokens or _TOKENS) / len(timed.events))
    )


async def _limits(address: EngineAddress, model: dict[str, Any]) -> tuple[str, EngineLimits]:
    props = _json(await get(address, "/props"))
    if "total_slots" in props:
        settings = props.get("default_generation_settings") or {}
        context = _whole(settings.get("n_ctx")) or _whole((model.get("meta") or {}).get("n_ctx"))
        return "llamacpp", EngineLimits(  # each slot has a context of its own
            max_num_seqs=_whole(props["total_slots"]),
            max_model_len=context,
            max_num_batched_tokens=2048,  # the default: the server does not tell it
            async_scheduling=False,
        )
    server = _json(await get(address, "/get_server_info"))
    if "max_running_requests" in server or "chunked_prefill_size" in server:
        return "sglang", EngineLimits(
            max_num_seqs=_whole(server.get("max_running_requests")),
            max_num_batched_tokens=_whole(server.get("chunked_prefill_size")),
            max_model_len=_whole(model.get("max_model_len")) or _whole(server.get("context_length")),
            block_size=_whole(server.get("page_size")),
        )
    metrics = (await get(address, "/metrics")).decode("utf-8", "replace")
    config = dict(_LABEL.findall(found[1])) if (found := _CACHE.search(metrics)) else {}
    info = _json(await get(address, "/server_info?config_format=json"))
    whole = info.get("vllm_config")
    scheduler = (whole if isinstance(whole, dict) else info).get("scheduler_config") or info
    kind = "vllm" if config else "openai"
    return kind, EngineLimits(
        max_num_seqs=_whole(scheduler.get("max_num_seqs")),
        max_num_batched_tokens=_whole(scheduler.get("max_num_batched_tokens")),
        max_model_len=_whole(model.get("max_model_len")),
        block_size=_whole(config.get("block_size")),
        total_gpu_blocks=_whole(config.get("num_gpu_blocks")),
        async_scheduling=scheduler.get("async_scheduling"),
    )


def _json(content: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(content) if content else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _whole(value: object) -> int | None:
    """A positive number; ``None`` if the engine says nothing or "no limit"."""
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number > 0 else None
