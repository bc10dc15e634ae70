"""Any stream, cut anywhere and any number of times, reads as the stream that was not cut."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from enginehouse.relay.events.sse import whole_events
from enginehouse_continuation.continuer import ContinuationTranslator
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_kit.testing import FakeShare
from enginehouse_vllm import VllmDriver
from tests.support.seen_stream import read_stream
from tests.support.streaming_model import stream

DRIVER = VllmDriver()
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    path = draw(st.sampled_from([CHAT, COMPLETIONS]))
    body: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": draw(st.integers(1, 40))}
    salt = draw(st.integers(0, 10_000))
    if path == CHAT:
        body["messages"] = [{"role": "user", "content": f"{salt}"}]
    else:
        body["prompt"] = draw(st.sampled_from([f"p{salt}", [1, 2, salt % 15]]))
        if draw(st.booleans()):
            del body["max_tokens"]
    if draw(st.booleans()):
        body["stop"] = draw(st.sampled_from(["abx", ["a", " b a"], ["END\n", "é🚂"], "x x x"]))
        body["include_stop_str_in_output"] = draw(st.booleans())
    if draw(st.booleans()):
        body["min_tokens"] = draw(st.integers(0, body.get("max_tokens", 16)))
    if draw(st.booleans()):
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": draw(st.booleans())}
    if draw(st.booleans()):
        body["return_token_ids"] = True
    return path, msgspec.json.encode(body)


def cut_and_continued(path: str, body: bytes, cuts: list[int], sizes: list[int]) -> bytes:
    """The client's bytes of a stream whose engines break off after so many bytes each."""
    asked = DRIVER.continuable(path, body)
    history = StreamHistory(path, body, DRIVER.streams, FakeShare(), added=asked is not body)
    wire = b""
    translator = None
    for number, cut in enumerate([*cuts, 1 << 30]):
        raw = b"".join(stream(path, asked, f"r{number}"))[:cut]
        held, at = b"", 0
        while at < len(raw):
            size = sizes[at % len(sizes)]
            piece, held = whole_events(held + raw[at : at + size])
            at += size
            if piece:
                wire += history.take(piece) if translator is None else b"".join(translator.translate(piece))
        if history.common is None and translator is None and not wire:
            continue
        ending = history.ending()
        if ending is not None:
            return wire + ending
        assert not history.why_not_movable()
        continuation = DRIVER.continuation(history.partial(body))
        limit = msgspec.json.decode(continuation.body)["max_tokens"]
        assert limit + continuation.tokens == msgspec.json.decode(body).get("max_tokens", 16)
        path, asked = continuation.path, continuation.body
        translator = ContinuationTranslator(history, continuation, DRIVER.streams)
    raise AssertionError("the last engine does not break off")


@given(requests(), st.lists(st.integers(0, 6000), max_size=8), st.lists(st.integers(1, 700), min_size=1, max_size=7))
def test_a_stream_cut_anywhere_reads_as_if_it_were_not(
    request: tuple[str, bytes], cuts: list[int], sizes: list[int]
) -> None:
    path, body = request
    whole = read_stream(b"".join(stream(path, body, "r0")))
    client = read_stream(cut_and_continued(path, body, cuts, sizes))
    assert len(client.heads) == 1
    assert (client.answer, client.counts) == (whole.answer, whole.counts)
