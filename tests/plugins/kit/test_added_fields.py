"""What was added so that a stream can be continued never reaches the client."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse.continuers import read_events
from enginehouse_kit.added_fields import cutter
from tests.support.streaming_model import stream

TEXTS = st.text() | st.sampled_from(['"token_ids":[1]', ',"token_ids":[1],', '{"logprobs":{"a":[', "]}", '\\",'])


def event(chunk: Any) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


@given(st.lists(st.tuples(TEXTS, st.lists(st.integers(0, 200_000), max_size=3), st.booleans()), min_size=1, max_size=4))
def test_tokens_are_cut_out_of_any_events(pieces: list[tuple[str, list[int], bool]]) -> None:
    cut = cutter(("token_ids",))
    assert cut is not None
    wire = wanted = b""
    for text, ids, first in pieces:
        wire += event({"choices": [{"text": text, "token_ids": ids, **({"prompt_token_ids": ids} if first else {})}]})
        wanted += event({"choices": [{"text": text}]})
    assert cut(wire) == wanted


@given(TEXTS, TEXTS)
def test_an_object_is_cut_out_whatever_its_texts_are(text: str, token: str) -> None:
    cut = cutter(("logprobs",))
    assert cut is not None
    scores = {"content": [{"id": 5, "token": token, "bytes": [1, 2], "top_logprobs": [{"token": token}]}]}
    added = event({"choices": [{"delta": {"content": text}, "logprobs": scores, "index": 0}]})
    assert cut(added) == event({"choices": [{"delta": {"content": text}, "index": 0}]})


def test_usage_is_cut_out_with_its_own_event() -> None:
    cut = cutter(("usage",))
    assert cut is not None
    chunk = event({"choices": [{"text": "a"}], "usage": {"prompt_tokens": 1}})
    last = event({"choices": [], "usage": {"prompt_tokens": 1}})
    assert cut(chunk + last + b"data: [DONE]\n\n") == event({"choices": [{"text": "a"}]}) + b"data: [DONE]\n\n"
    assert cut(b"id: 1\n" + chunk) == b"id: 1\n" + event({"choices": [{"text": "a"}]})
    assert cut(b'data: {"choices":[{}],\ndata: "usage":{"a":1}}\n\n') == b'data: {"choices":[{}]}\n\n'


def spaced(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk, indent=None, separators=(" , ", " : ")).encode() + b"\n\n"


@pytest.mark.parametrize(
    "choice", [{"index": 0, "logprobs": {"content": [{}]}}, {"logprobs": {"content": [{}]}, "index": 0}]
)
def test_an_object_is_cut_out_however_the_engine_spaces_it(choice: Any) -> None:
    cut = cutter(("logprobs",))
    assert cut is not None
    [shown] = read_events(cut(spaced({"choices": [choice], "id": "x"})))
    assert shown.data is not None
    assert msgspec.json.decode(shown.data) == {"choices": [{"index": 0}], "id": "x"}


def test_spaced_tokens_are_cut_out() -> None:
    cut = cutter(("token_ids",))
    assert cut is not None
    chunk = {"prompt_token_ids": [1, 2], "choices": [{"index": 0, "token_ids": [3]}, {"token_ids": None, "index": 1}]}
    [shown] = read_events(cut(spaced(chunk)))
    assert shown.data is not None
    assert msgspec.json.decode(shown.data) == {"choices": [{"index": 0}, {"index": 1}]}


def test_spaced_usage_is_cut_out_with_its_own_event() -> None:
    cut = cutter(("usage",))
    assert cut is not None
    last = spaced({"choices": [], "usage": {"prompt_tokens": 1}})
    [shown] = read_events(cut(spaced({"usage": {"prompt_tokens": 1}, "choices": [{}]}) + last))
    assert shown.data is not None
    assert msgspec.json.decode(shown.data) == {"choices": [{}]}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_with_its_tokens_cut_out_is_the_stream_without_them(path: str) -> None:
    cut = cutter(("token_ids",))
    assert cut is not None
    body = b'{"model":"m","max_tokens":9,"messages":[],"prompt":"p"}'
    told = body.replace(b'"p"}', b'"p","return_token_ids":true}')
    shown = [each for each in map(cut, stream(path, told)) if b'"text":""' not in each and b'"content":""}' not in each]
    plain = [each for each in stream(path, body) if b'"text":""' not in each and b'"content":""}' not in each]
    assert shown == plain
