"""A driver can find the tokens of an answer from the texts of its events, if each had the text of one token."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse.drivers import Continuation, StreamTraits
from enginehouse_continuation.continuer import ContinuationTranslator
from enginehouse_continuation.restrictions import has_joined_tokens
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_kit.testing import FakeShare, candidate

COMPLETIONS = "/v1/completions"
PLAIN = StreamTraits(token_by_token=True)
OTHER = StreamTraits()


def delivered(traits: StreamTraits, *pieces: str, **fields: Any) -> StreamHistory:
    """A stream whose client has ``pieces``."""
    body = msgspec.json.encode({"model": "m", "prompt": "p", "max_tokens": 9, "stream": True, **fields})
    stream = StreamHistory(COMPLETIONS, body, traits, FakeShare(), added=False)
    for piece in pieces:
        stream.take(event(piece))
    stream.read()
    return stream


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"id": "x", "choices": [choice]}) + b"\n\n"


def continued(
    stream: StreamHistory, traits: StreamTraits, *pieces: str, skip: int = 0, tokens: int = 2
) -> StreamHistory:
    """``stream`` after another engine has repeated ``skip`` characters and gone on."""
    continuation = Continuation(path=COMPLETIONS, body=b"{}", tokens=tokens, skip=skip, exact=not skip)
    translator = ContinuationTranslator(stream, continuation, traits)
    for piece in pieces:
        list(translator.translate(event(piece)))
    return stream


def pieces(stream: StreamHistory) -> list[str] | None:
    found = stream.partial(stream.body).pieces
    return None if found is None else list(found)


def test_the_pieces_are_those_of_the_events() -> None:
    assert pieces(delivered(PLAIN, "a", "", "bc", "é")) == ["a", "bc", "é"]
    assert pieces(delivered(OTHER, "a", "bc")) is None


def test_another_engine_adds_its_pieces() -> None:
    assert pieces(continued(delivered(PLAIN, "a", "bc"), PLAIN, "d", "ef")) == ["a", "bc", "d", "ef"]
    assert pieces(continued(delivered(PLAIN, "a", "bc"), OTHER, "d", "ef")) is None
    assert pieces(continued(delivered(OTHER, "a", "bc"), PLAIN, "d", "ef")) is None


def test_an_answer_that_begins_anew_has_the_pieces_of_the_new_one() -> None:
    anew = continued(delivered(PLAIN, "a", "bc"), PLAIN, "ab", "cd", "e", skip=3, tokens=0)
    assert pieces(anew) == ["ab", "cd", "e"]
    assert anew.progress.text == "abcde"


@pytest.mark.parametrize(("skip", "known"), [(2, ["a", "bcd"]), (1, None)])
def test_a_part_of_a_piece_that_is_repeated_leaves_the_tokens_unknown(skip: int, known: list[str] | None) -> None:
    assert pieces(continued(delivered(PLAIN, "a", "bc"), PLAIN, "bcd"[2 - skip :], skip=skip)) == known


def test_a_piece_that_a_stop_string_has_held_back_may_have_several_tokens() -> None:
    stop = {"stop": ["\n\n", "END"]}
    assert not has_joined_tokens(["a", "\n", ".\n", "E"], stop)
    assert not has_joined_tokens(["aEb", "a\nb"], {})
    assert has_joined_tokens(["a", "\nb"], stop)
    assert has_joined_tokens(["xEb"], stop)
    assert pieces(delivered(PLAIN, "a", "\nb", stop="\n\n")) is None


def test_an_answer_with_as_many_pieces_as_it_may_have_tokens_has_ended() -> None:
    assert b'"finish_reason":"length"' in (delivered(PLAIN, *"123456789").ending() or b"")
    assert delivered(PLAIN, *"12345678").ending() is None


def test_an_engine_that_has_not_answered_is_replaced_by_another() -> None:
    class Driver:
        streams = PLAIN

        def continuable(self, path: str, body: bytes) -> bytes:
            return body

    stream = StreamHistory(COMPLETIONS, delivered(OTHER).body, OTHER, FakeShare(), added=False)
    stream.begin_anew(Driver(), candidate("b"))  # type: ignore[arg-type]
    stream.take(event("a"))
    stream.read()
    assert pieces(stream) == ["a"]


def test_a_stream_whose_request_cannot_be_read_stays_where_it_is() -> None:
    stream = StreamHistory(COMPLETIONS, b'{"model":"m","prompt":"p","note":"\xff"}', PLAIN, FakeShare(), added=False)
    assert stream.take(event("a")) == event("a")
    assert stream.why_not_movable() == "its request cannot be read"
    assert stream.ending() is None
    assert not stream.may_go_on()
