"""Clients that read streams of completions, and note the gaps in them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

import httpx

from tests.support import plain_httpx
from tests.support.seen_stream import SeenStream, read_stream


class StreamReader:
    """Asks for a greedy completion and reads it. ``longest``: the longest time between two pieces, in seconds."""

    def __init__(self, name: str, model: str, prompt: str, tokens: int) -> None:
        self.id = name
        self.body = {
            "model": model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        self.wire = b""
        self.longest = 0.0

    @property
    def events(self) -> int:
        """How many events have come."""
        return self.wire.count(b"data: ")

    async def read(self, client: httpx.AsyncClient, url: str) -> SeenStream:
        """The whole stream."""
        headers = {"x-request-id": self.id}
        async with client.stream("POST", f"{url}/v1/completions", json=self.body, headers=headers) as response:
            last = perf_counter()
            async for piece in response.aiter_raw():
                now = perf_counter()
                if self.wire:
                    self.longest = max(self.longest, now - last)
                last = now
                self.wire += piece
        return read_stream(self.wire)


def start(readers: Sequence[StreamReader], client: httpx.AsyncClient, url: str) -> list[asyncio.Task[SeenStream]]:
    """Have all of them read at once."""
    return [asyncio.create_task(each.read(client, url)) for each in readers]


def gaps(readers: Sequence[StreamReader]) -> str:
    """The longest gaps of the streams, in words."""
    longest = sorted(each.longest * 1000 for each in readers)
    return f"{len(longest)} streams, longest gap p50 {longest[len(longest) // 2]:.0f} ms, max {longest[-1]:.0f} ms"


def many_streams() -> httpx.AsyncClient:
    """A client for many streams at once."""
    return plain_httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=100))
