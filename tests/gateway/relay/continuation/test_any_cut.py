"""Any stream, cut anywhere and any number of times, reads as the stream that was not cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from enginehouse.relay.continuation.delivered import Delivered
from enginehouse.relay.continuation.joint import Joint
from enginehouse.relay.sse import whole_events
from enginehouse_vllm import VllmDriver
from tests.support.streaming_model import stream

DRIVER = VllmDriver()
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Seen(NamedTuple):
    """What a client makes of a stream."""

    text: str
    finish: str | None
    usage: Any
    ids: list[int]
    heads: set[str]
    roles: int
    ended: bool


def seen(wire: bytes) -> Seen:
    ids: list[int] = []
    heads: set[str] = set()
    text, finish, usage, roles, ended = "", None, None, 0, False
    for event in wire.split(b"\n\n")[:-1]:
        assert not ended
        data = event.removeprefix(b"data: ")
        if data == b"[DONE]":
            ended = True
            continue
        chunk = msgspec.json.decode(data)
        heads.add(f"{chunk['id']} {chunk['created']} {chunk['model']} {chunk['object']}")
        usage = chunk.get("usage", usage)
        for choice in chunk["choices"]:
            assert finish is None
            delta = choice.get("delta", {})
            roles += "role" in delta
            text += choice.get("text") or delta.get("content") or ""
            finish = choice["finish_reason"]
            ids += choice.get("token_ids") or []
    return Seen(text, finish, usage, ids, heads, roles, ended)


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
    delivered = Delivered(path, body, DRIVER.streams, added=asked is not body)
    wire = b""
    joint = None
    for number, cut in enumerate([*cuts, 1 << 30]):
        raw = b"".join(stream(path, asked, f"r{number}"))[:cut]
        held, at = b"", 0
        while at < len(raw):
            size = sizes[at % len(sizes)]
            piece, held = whole_events(held + raw[at : at + size])
            at += size
            if piece:
                wire += delivered.take(piece) if joint is None else joint.translate(piece)
        if delivered.common is None and joint is None and not wire:
            continue
        ending = delivered.ending()
        if ending is not None:
            return wire + ending
        assert not delivered.stays()
        continuation = DRIVER.continuation(delivered.partial(body))
        limit = msgspec.json.decode(continuation.body)["max_tokens"]
        assert limit + continuation.tokens == msgspec.json.decode(body).get("max_tokens", 16)
        path, asked = continuation.path, continuation.body
        joint = Joint(delivered, continuation, DRIVER.streams)
    raise AssertionError("the last engine does not break off")


@given(requests(), st.lists(st.integers(0, 6000), max_size=8), st.lists(st.integers(1, 700), min_size=1, max_size=7))
def test_a_stream_cut_anywhere_reads_as_if_it_were_not(
    request: tuple[str, bytes], cuts: list[int], sizes: list[int]
) -> None:
    path, body = request
    whole = seen(b"".join(stream(path, body, "r0")))
    client = seen(cut_and_continued(path, body, cuts, sizes))
    heads = {head.partition(" ")[2] for head in client.heads}
    assert heads == {head.partition(" ")[2] for head in whole.heads}
    assert len(client.heads) == 1
    assert client._replace(heads=set(), usage=None) == whole._replace(heads=set(), usage=None)
    assert counts(client.usage) == counts(whole.usage)


def counts(usage: Any) -> Any:
    return usage and {name: value for name, value in usage.items() if name.endswith("_tokens")}
