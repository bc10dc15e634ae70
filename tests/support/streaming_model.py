"""A model and the streams that a vLLM makes of it, without I/O: what it says depends on all tokens before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec

PIECES = [
    *(word.encode() for word in (" a", " b", "ab", "ba", "x", " END", "\n", '"', "\\", " data: ", "]")),
    *("é".encode()[:1], "é".encode()[1:]),
    *("🚂".encode()[:2], "🚂".encode()[2:]),
    b"",
]
"""The text of each token; some are parts of characters, one has none."""


def prompt_ids(body: dict[str, Any]) -> list[int]:
    """The tokens of a prompt."""
    if "messages" in body:
        text = msgspec.json.encode(body["messages"])
    elif isinstance(body["prompt"], list):
        return list(body["prompt"])
    else:
        text = body["prompt"].encode()
    return list(text)


def next_token(ids: Sequence[int]) -> int:
    """The token after ``ids``. A part of a character is always followed by the rest of it."""
    if ids and ids[-1] in (11, 13):
        return ids[-1] + 1
    token = crc32(msgspec.json.encode(list(ids))) % len(PIECES)
    return token if token not in (12, 14) else 0


class _Detokenizer:
    """Withholds characters in part, and what stop strings may begin with."""

    def __init__(self, stops: Sequence[str], include: bool) -> None:
        self._stops = stops
        self._include = include
        self._withheld = 0 if include else max((len(stop) - 1 for stop in stops), default=0)
        self._pending = b""
        self._text = ""
        self._shown = 0

    def push(self, token: int, checks: bool) -> str | None:
        """Take a token; returns the stop string that it completed."""
        before = len(self._text)
        self._pending += PIECES[token]
        try:
            self._text += self._pending.decode()
            self._pending = b""
        except UnicodeDecodeError:
            return None
        if not checks:
            return None
        for stop in self._stops:
            at = self._text.find(stop, max(0, before + 1 - len(stop)))
            if at >= 0 and at + len(stop) > before:
                self._text = self._text[: at + len(stop) * self._include]
                return stop
        return None

    def show(self, last: bool) -> str:
        end = len(self._text) if last else max(self._shown, len(self._text) - self._withheld)
        shown, self._shown = self._text[self._shown : end], end
        return shown


def stream(path: str, raw: bytes, request_id: str = "r") -> Iterator[bytes]:
    """The events of the answer to a request."""
    body = msgspec.json.decode(raw)
    chat = path == "/v1/chat/completions"
    ids = prompt_ids(body)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16
    stop = body.get("stop") or []
    detokenizer = _Detokenizer([stop] if isinstance(stop, str) else stop, bool(body.get("include_stop_str_in_output")))
    options = body.get("stream_options") or {}
    wants_ids = body.get("return_token_ids") is True
    head = {"id": request_id, "object": "chunk", "created": 1, "model": body["model"]}

    def event(choice: dict[str, Any] | None, made: int, **more: Any) -> bytes:
        chunk = {**head, "choices": [] if choice is None else [choice], **more}
        if options.get("include_usage") and (choice is None or options.get("continuous_usage_stats")):
            usage = {"prompt_tokens": len(ids), "completion_tokens": made, "total_tokens": len(ids) + made}
            chunk["usage"] = {**usage, "prompt_tokens_details": {"cached_tokens": 3}} if made == 0 else usage
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"

    if chat:
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        yield event(first, 0, **({"prompt_token_ids": ids} if wants_ids else {}))
    made: list[int] = []
    finish = None
    while finish is None:
        token = next_token(ids + made)
        made.append(token)
        stopped = detokenizer.push(token, len(made) > (body.get("min_tokens") or 0))
        finish = "stop" if stopped is not None else "length" if len(made) >= limit else None
        text = detokenizer.show(finish is not None)
        choice: dict[str, Any] = {"index": 0, **({"delta": {"content": text}} if chat else {"text": text})}
        choice |= {"logprobs": None, "finish_reason": finish}
        if finish is not None:
            choice["stop_reason"] = stopped
        if wants_ids:
            choice["token_ids"] = [token]
            if not chat and len(made) == 1:
                choice["prompt_token_ids"] = ids
        if text or finish or wants_ids:
            yield event(choice, len(made))
    if options.get("include_usage"):
        yield event(None, len(made))
    yield b"data: [DONE]\n\n"
