from __future__ import annotations

import pytest

from enginehouse.domain.tokens import Tokens
from enginehouse.telemetry.answer_meter import AnswerMeter, read_tokens

OPENAI = (
    b'"usage":{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":3}}'
)
CHUNK = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
BODIES = {
    "last": b'{"choices":[],' + OPENAI + b"}",
    "in the middle": b'{"choices":[],' + OPENAI + b',"system_fingerprint":null}',
    "spaced": b'{\n  "choices": [],\n  "usage" : {\n    "prompt_tokens" : 12,\n    "completion_tokens": 9\n  }\n}\n',
    "after a long text": b'{"text":"' + b"x" * 9999 + b'",' + OPENAI + b"}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_usage_is_found_at_the_end_of_a_body(body: bytes) -> None:
    assert read_tokens(body) == Tokens(12, 9, 3 if b"cached" in body else None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b'{"usage": null}',
        b'{"usage": "a lot"}',
        b'{"usage": {"prompt_tokens": "12"}}',
        b'{"usage": {"prompt_tokens": -1}}',
        b'{"usage": {"prompt_tokens": 100000000000000000000}}',
        b'{"text": "he said \\"usage\\": {\\"prompt_tokens\\": 5}"}',
        b'{"usage": {"prompt_tokens": 12',
    ],
)
def test_no_usage_is_no_tokens(body: bytes) -> None:
    assert read_tokens(body) is None


def test_usage_of_embeddings_has_no_answer() -> None:
    assert read_tokens(b'{"data":[],"usage":{"prompt_tokens":5,"total_tokens":5}}') == Tokens(5, 0)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (b'"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":8}', Tokens(9, 4, 8)),
        (b'"input_tokens":1,"cache_read_input_tokens":6,"cache_creation_input_tokens":2', Tokens(9, 0, 6)),
        (b'"input_tokens":1,"cache_read_input_tokens":null,"cache_creation_input_tokens":null', Tokens(1, 0)),
        (b'"prompt_tokens":9,"prompt_tokens_details":null', Tokens(9, 0)),
        (b'"prompt_tokens":9,"prompt_tokens_details":{"audio_tokens":0}', Tokens(9, 0)),
    ],
)
def test_the_tokens_of_the_prompt_that_were_cached(usage: bytes, tokens: Tokens) -> None:
    """Anthropic counts only the tokens after the cache as its input."""
    assert read_tokens(b'{"usage":{%s}}' % usage) == tokens


def metered(*pieces: bytes, stream: bool = True) -> tuple[int, int, Tokens | None]:
    meter = AnswerMeter(stream)
    for piece in pieces:
        meter.add(piece)
    return meter.total()


@pytest.mark.parametrize("count", [1, 16, 100, 1000])
def test_events_of_a_stream_count_where_the_engine_tells_no_tokens(count: int) -> None:
    pieces = [CHUNK] * count + [b"data: [DONE]\n\n"]
    assert metered(*pieces) == (sum(map(len, pieces)), count, None)


ROLE = b'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": null}}]}\n\n'
TEXT = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}\n\n'
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
LAST = b'data: {"choices": [{"index": 0, "delta": {"content": "z"}, "finish_reason": "stop"}]}\n\n'


@pytest.mark.parametrize(
    "pieces",
    [
        [ROLE, *[TEXT] * 50, END, b"data: [DONE]\n\n"],
        [TEXT] * 50,
        [*[TEXT] * 49, LAST, b"data: [DONE]\n\n"],
        [b": hello\n\n", ROLE, *[TEXT, b": still here\n\n"] * 50, END, b"data: [DONE]\n\n"],
        [each.replace(b"\n", b"\r\n") for each in (ROLE, *[TEXT] * 50, END, b"data: [DONE]\n\n")],
    ],
    ids=["usual", "broken off", "text in the last", "comments", "CRLF"],
)
def test_only_events_with_text_stand_for_tokens(pieces: list[bytes]) -> None:
    assert metered(*pieces)[1:] == (50, None)


def test_a_llama_server_tells_its_tokens_without_being_asked() -> None:
    timings = b'"timings":{"cache_n":7,"prompt_n":5,"prompt_ms":3.2,"predicted_n":50,"predicted_ms":9.1}'
    end = b'data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"object":"chunk",' + timings + b"}\n\n"
    assert metered(TEXT, TEXT, end, b"data: [DONE]\n\n")[2] == Tokens(12, 50, 7)


def test_the_usage_that_a_client_asked_for_is_read_from_a_stream() -> None:
    event = b'data: {"choices":[],' + OPENAI + b"}\n\n"
    assert metered(CHUNK, CHUNK, event, b"data: [DONE]\n\n")[2] == Tokens(12, 9, 3)


@pytest.mark.parametrize("between", [0, 1, 40, 1000])
@pytest.mark.parametrize("together", [False, True])
def test_an_anthropic_stream_tells_its_tokens_at_both_ends(between: int, together: bool) -> None:
    usage = b'{"usage":{"input_tokens":7,"output_tokens":1}}'
    start = b'event: message_start\ndata: {"type":"message_start","message":%s}\n\n' % usage
    delta = b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":30}}\n\n'
    stop = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    pieces = [start, *[CHUNK] * between, delta, stop]
    assert metered(*[b"".join(pieces)] if together else pieces)[2] == Tokens(7, 30)


def test_a_stream_of_responses_tells_its_tokens_inside_the_last_event() -> None:
    response = b'{"usage":{"input_tokens":3,"output_tokens":4},"user":null}'
    last = b'event: response.completed\ndata: {"type":"response.completed","response":%s}\n\n' % response
    assert metered(CHUNK, last)[2] == Tokens(3, 4)


def test_a_body_in_pieces_is_read_across_their_borders() -> None:
    body = BODIES["last"]
    assert metered(body[:30], body[30:], stream=False) == (len(body), 0, Tokens(12, 9, 3))


def test_no_more_than_the_end_of_a_large_body_is_kept() -> None:
    assert metered(b"x" * 1_000_000, b"{" + OPENAI + b"}", stream=False)[2] == Tokens(12, 9, 3)
