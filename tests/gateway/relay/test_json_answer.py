from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from enginehouse.domain.errors import UpstreamError, UpstreamInvalid
from enginehouse.relay.answers.json_in_pieces import JsonInPieces
from enginehouse.relay.attempts.answer_judge import is_json, read_answer

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.builds(
    lambda value, escaped: json.dumps(value, ensure_ascii=escaped).encode(errors="replace"), VALUES, st.booleans()
)


def loads(body: bytes) -> bool:
    try:
        json.loads(body.decode())
    except (ValueError, RecursionError):
        return False
    return True


@given(BODIES, st.integers(0, 200), st.binary(max_size=3))
def test_what_passes_is_what_a_client_reads(body: bytes, at: int, noise: bytes) -> None:
    spoiled = body[:at] + noise + body[at + len(noise) :]
    assert is_json(body)
    assert is_json(spoiled) == loads(spoiled)


@given(st.dictionaries(st.text(max_size=4), VALUES, min_size=1, max_size=3), st.lists(st.integers(0, 300), max_size=4))
def test_json_in_pieces_is_whole_at_its_end_only(value: object, cuts: list[int]) -> None:
    body = json.dumps(value).encode()
    inside = sorted({cut for cut in cuts if 0 < cut < len(body)})
    follower = JsonInPieces()
    for start, end in zip([0, *inside], [*inside, len(body)], strict=True):
        follower.take(body[start:end])
        assert follower.is_whole is (end == len(body))


def test_counts_that_cannot_be_read_do_not_spoil_an_answer() -> None:
    body = b'{"choices":[],"usage":{"prompt_tokens":"many"}}'
    assert read_answer(body, "a", may_be_error=True) == (None, None)
    broken, _ = read_answer(body.replace(b"many", b"\xff"), "a", may_be_error=True)
    assert isinstance(broken, UpstreamInvalid)
    failed, _ = read_answer(body[:-1] + b',"error":{"message":"no"}}', "a", may_be_error=True)
    assert isinstance(failed, UpstreamError)
