"""Measures how long a move blocks the event loop at once, which must stay below 1 ms."""

from __future__ import annotations

import json

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from enginehouse.domain.continuation import Continuation
from enginehouse_continuation.continuer import ContinuationTranslator
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_kit.added_fields import one_token
from enginehouse_kit.testing import FakeShare
from enginehouse_vllm import VllmDriver

PATH = "/v1/chat/completions"
DRIVER = VllmDriver()
SIZES = pytest.mark.parametrize(("prompt", "chunks"), [(100, 100), (8000, 1000), (32_000, 1000), (8000, 8000)])


def event(prompt: int = 0, **choice: object) -> bytes:
    fields = {"index": 0, "logprobs": None, "finish_reason": None, **choice}
    ids = {"prompt_token_ids": list(range(100_000, 100_000 + prompt))} if prompt else {}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [fields], **ids}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def streaming(prompt: int, chunks: int) -> StreamHistory:
    """A stream of which ``chunks`` chunks have passed."""
    question = [{"role": "user", "content": "word " * prompt}]
    body = msgspec.json.encode({"model": "m", "stream": True, "max_tokens": 40_000, "messages": question})
    delivered = StreamHistory(PATH, body, DRIVER.streams, FakeShare(), added=True)
    delivered.take(event(prompt, delta={"role": "assistant", "content": ""}, token_ids=[]))
    for number in range(chunks):
        delivered.take(event(delta={"content": f" tok{number}"}, token_ids=[1000 + number]))
    return delivered


def asked(delivered: StreamHistory) -> Continuation:
    assert not delivered.why_not_movable()
    return DRIVER.continuation(delivered.partial(delivered.body))


@SIZES
def test_before_the_cut(benchmark: BenchmarkFixture, prompt: int, chunks: int) -> None:
    delivered = streaming(prompt, chunks)
    benchmark(lambda: one_token(asked(delivered).body))


@SIZES
def test_the_cut(benchmark: BenchmarkFixture, prompt: int, chunks: int) -> None:
    delivered = streaming(prompt, chunks)
    benchmark(lambda: ContinuationTranslator(delivered, asked(delivered), DRIVER.streams))


@SIZES
def test_the_first_event_of_the_other_engine(benchmark: BenchmarkFixture, prompt: int, chunks: int) -> None:
    delivered = streaming(prompt, chunks)
    continuation = asked(delivered)
    first = event(prompt + chunks, text=" next", token_ids=[7])

    def translate() -> None:
        assert list(ContinuationTranslator(delivered, continuation, DRIVER.streams).translate(first))

    benchmark(translate)


@SIZES
def test_the_first_event_of_a_stream(benchmark: BenchmarkFixture, prompt: int, chunks: int) -> None:
    first = event(prompt, delta={"role": "assistant", "content": ""}, token_ids=[])

    def take() -> None:
        delivered = StreamHistory(PATH, b'{"model":"m"}', DRIVER.streams, FakeShare(), added=True)
        delivered.take(first)
        delivered.read()

    benchmark(take)
