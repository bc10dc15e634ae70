"""Clients that read whole streams of simulated models, one like the other."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import httpx

from tests.support.seen_stream import SeenStream, read_stream

TOKENS = 150


def request(number: int, tokens: int = TOKENS) -> tuple[str, dict[str, Any]]:
    """A chat if ``number`` is odd, else a completion."""
    body = {"model": "m", "stream": True, "max_tokens": tokens, "stream_options": {"include_usage": True}}
    if number % 2:
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": f"Tell {number}"}]}
    return "/v1/completions", {**body, "prompt": f"Tell {number}"}


class Reader:
    """Reads one stream, and notes the longest time between two pieces."""

    def __init__(self, number: int, tokens: int = TOKENS, **more: Any) -> None:
        self.path, body = request(number, tokens)
        self.body = {**body, **more}
        self.id = f"r{number}"
        self.wire = b""
        self.longest = 0.0

    async def read(self, client: httpx.AsyncClient, url: str) -> SeenStream:
        headers = {"x-request-id": self.id}
        async with client.stream("POST", url + self.path, json=self.body, headers=headers) as response:
            last = 0.0
            async for piece in response.aiter_raw():
                now = perf_counter()
                self.longest = max(self.longest, now - last if last else 0.0)
                last = now
                self.wire += piece
        return read_stream(self.wire)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
