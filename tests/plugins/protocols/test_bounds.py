"""Requests whose translation would block the event loop for too long are refused before it begins."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from enginehouse.errors import BodyTooLarge
from enginehouse_kit.protocols import Protocol, ProtocolRequest, Translation
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.responses.protocol import Responses
from enginehouse_protocols.responses.stored import StoredResponses

PATHS: dict[str, Protocol] = {
    "/api/chat": Ollama(),
    "/api/generate": Ollama(),
    "/v1/messages": Messages(),
    "/v1/messages/count_tokens": Messages(),
    "/v1/responses": Responses(),
    "/v1/responses/input_tokens": Responses(),
}
HEAD = b'{"model":"m","max_tokens":9,'


ENDLESS = {
    "images": ("/api/chat", b'"messages":[{"role":"user","images":[%s]}]', b'""', 4_000_000),
    "few images too many": ("/api/chat", b'"messages":[{"role":"user","images":[%s]}]', b'""', 20_000),
    "images of a prompt": ("/api/generate", b'"images":[%s]', b'""', 1_000_000),
    "turns": ("/api/chat", b'"messages":[%s]', b'{"role":"user"}', 30_000),
    "calls": ("/api/chat", b'"messages":[{"role":"assistant","tool_calls":[%s]}]', b"{}", 50_000),
    "tools of a response": ("/v1/responses", b'"input":"hi","tools":[%s]', b'{"type":"function"}', 1_000_000),
    "items": ("/v1/responses", b'"input":[%s]', b"{}", 100_000),
    "parts": ("/v1/responses", b'"input":[{"content":[%s]}]', b'{"type":"text"}', 50_000),
    "values of a schema": (
        "/v1/responses",
        b'"input":"hi","tools":[{"type":"function","parameters":[%s]}]',
        b"[]",
        3_000_000,
    ),
    "blocks": ("/v1/messages", b'"messages":[{"role":"user","content":[%s]}]', b'{"type":"text"}', 50_000),
    "results": (
        "/v1/messages",
        b'"messages":[{"role":"user","content":[{"type":"tool_result","content":[%s]}]}]',
        b'{"type":"text"}',
        50_000,
    ),
    "blocks to count": ("/v1/messages/count_tokens", b'"messages":[%s]', b'{"role":"user","content":""}', 50_000),
    "escapes": ("/v1/messages", b'"messages":[{"role":"user","content":"%s"}]', b"\\n", 12 << 20),
    "text that is not ASCII": (
        "/v1/messages",
        b'"messages":[{"role":"user","content":"%s"}]',
        "é".encode(),
        12 << 20,
    ),
    "brackets": ("/v1/responses", b'"input":%s', b"[", 5_000_000),
}
"""The path of each, its fields, what stands in them, and how many times."""


def translated(path: str, body: bytes) -> Translation:
    made = PATHS[path].translate(ProtocolRequest(path, body, lambda _: True))
    assert isinstance(made, Translation)
    return made


@pytest.mark.parametrize(("path", "fields", "item", "count"), ENDLESS.values(), ids=ENDLESS)
def test_endless_requests_are_refused_before_they_are_translated(
    path: str, fields: bytes, item: bytes, count: int
) -> None:
    between = b"," if b"[%s]" in fields else b""
    body = HEAD + fields % between.join([item] * count) + b"}"
    before = time.thread_time()
    with pytest.raises(BodyTooLarge) as refused:
        translated(path, body)
    assert refused.value.status == 413
    assert time.thread_time() - before < 1  # it was 15 s; a busy core takes 10 times as long as a quiet one


@pytest.mark.parametrize("path", ["/api/chat", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("text", ["[a, b], {c} \\ \n" * 100_000, '"\\' * 200_000, "x" * 20_000_000])
def test_long_texts_are_no_long_lists(path: str, text: str) -> None:
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9}
    said = {"input": text} if "responses" in path else {"messages": [{"role": "user", "content": text}]}
    assert json.loads(translated(path, json.dumps(asked | said).encode()).body)["messages"][0]["content"] == text


async def test_a_kept_conversation_counts_too() -> None:
    stored = StoredResponses(100_000_000)
    stored.keep({"id": "a", "output": []}, [msgspec.Raw(b'{"content":"hi"}')] * 150_000)
    with pytest.raises(BodyTooLarge):
        await stored.conversation("a")
