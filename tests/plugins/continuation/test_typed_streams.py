"""A stream of ``/v1/messages`` or ``/v1/responses``, cut anywhere and any number of times, reads as if it were not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import InvalidRequest
from enginehouse.continuers import AnswerDiffers
from enginehouse.drivers import Continuation, StreamTraits
from enginehouse.relay.events.sse import whole_events
from enginehouse_continuation.continuer import ContinuationTranslator
from enginehouse_continuation.progress import AnswerPiece
from enginehouse_continuation.typed_history import TypedHistory, typed_answer
from enginehouse_kit.protocols import Protocol, ProtocolRequest, Translation, TypedAnswer
from enginehouse_kit.testing import FakeShare
from enginehouse_protocols.messages.protocol import MessageEvents, Messages
from enginehouse_protocols.responses.protocol import Responses
from tests.support.paths import DOCS

PROTOCOLS: dict[str, Protocol] = {"/v1/messages": Messages(), "/v1/responses": Responses()}
PATHS = pytest.mark.parametrize("path", PROTOCOLS)
PROMPT = 7
_ID = re.compile(rb"(?:msg|resp)_[0-9a-f]{8,}")
_PING = b"event: ping"
_VARYING = re.compile(rb'"(?:created_at|input_tokens|total_tokens)":\d+')
"""Of a response that breaks at its very end, nobody knows the prompt's tokens."""


def body(path: str, most: int = 99) -> bytes:
    fields: dict[str, Any] = {"model": "m", "stream": True}
    if path == "/v1/responses":
        fields |= {"input": "Hi", "max_output_tokens": most}
    else:
        fields |= {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": most}
    return msgspec.json.encode(fields)


def translation(path: str, asked: bytes) -> Translation:
    found = PROTOCOLS[path].translate(ProtocolRequest(path, asked, lambda _: True))
    assert isinstance(found, Translation)
    return found


def history_of(path: str, asked: bytes) -> TypedHistory:
    traits = StreamTraits(token_by_token=True)
    answer = PROTOCOLS[path].typed_answer(path)
    assert answer is not None
    return TypedHistory(answer, asked, traits, lambda body: translation(path, body).body, FakeShare())


def chunks(words: Sequence[str], before: int, finish: str) -> list[dict[str, Any]]:
    """The events of a chat that says ``words``, after so many tokens ``before`` in its prompt."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    prompt, made = PROMPT + before, len(words)
    usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
    events: list[dict[str, Any]] = [{"id": "c", "model": "m", "choices": [choice]} for choice in choices]
    return [*events, {"id": "c", "model": "m", "choices": [], "usage": usage}]


def typed(path: str, asked: bytes, words: Sequence[str], finish: str) -> bytes:
    """The whole stream of one engine."""
    to = translation(path, asked)
    events = b"".join([*map(to.event, chunks(words, 0, finish)), to.end()])
    return events.replace(b'"input_tokens":0', b'"input_tokens":%d' % PROMPT, 1)  # vLLM tells it at the beginning


def chat(words: Sequence[str], before: int, finish: str) -> Iterator[bytes]:
    for chunk in chunks(words, before, finish):
        yield b"data: " + msgspec.json.encode(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"


def cut_and_continued(path: str, words: Sequence[str], cuts: Sequence[int], finish: str) -> bytes:
    """The client's bytes of a stream whose engines break off after so many bytes each."""
    asked = body(path, len(words) if finish == "length" else 99)
    history = history_of(path, asked)
    first, _ = whole_events(typed(path, asked, words, finish)[: cuts[0]])
    wire = first and history.take(first)
    for cut in (*cuts[1:], 1 << 30):
        ending = history.ending()
        if ending is not None:
            return wire + ending
        if history.is_unanswered:
            assert wire == b""
            return typed(path, asked, words, finish)
        made = history.partial(b"").text.count(" ")
        continuation = Continuation(path="/v1/chat/completions", body=b"", tokens=made)
        translator = ContinuationTranslator(history, continuation, StreamTraits())
        rest, _ = whole_events(b"".join(chat(words[made:], made, finish))[:cut])
        wire += b"".join(translator.translate(rest))
        if history.ended:
            return wire
    raise AssertionError("the last engine does not break off")


def events_of(wire: bytes) -> list[Any]:
    """The events but for pings, which clients pass over and a continued stream may lack. Ids are numbered again."""
    seen: dict[bytes, bytes] = {}
    wire = _ID.sub(lambda found: seen.setdefault(found[0], b"id%d" % len(seen)), _VARYING.sub(b'"":0', wire))
    wire = wire.replace(b'"status":"incomplete","role"', b'"status":"completed","role"')  # the translation says so
    events = [event.split(b"\ndata: ") for event in wire.split(b"\n\n")[:-1]]
    return [(name, without_scores(msgspec.json.decode(data))) for name, data in events if name != _PING]


def without_scores(event: dict[str, Any]) -> dict[str, Any]:
    """Engines say in each piece of a response that it has no log-probabilities; the gateway's translation does not."""
    return {name: value for name, value in event.items() if (name, value) != ("logprobs", [])}


WORDS = st.lists(st.sampled_from(["a ", "é ", "🚂 ", '" ', "\\ "]), min_size=1, max_size=12)
CUTS = st.lists(st.integers(0, 4000), min_size=1, max_size=5)


@PATHS
@given(words=WORDS, cuts=CUTS, finish=st.sampled_from(["stop", "length"]))
def test_a_stream_cut_anywhere_reads_as_if_it_were_not(
    path: str, words: list[str], cuts: list[int], finish: str
) -> None:
    whole = typed(path, body(path, len(words) if finish == "length" else 99), words, finish)
    assert events_of(cut_and_continued(path, words, cuts, finish)) == events_of(whole)


def began(path: str, *events: dict[str, Any]) -> TypedHistory:
    """The history of a stream that begins with ``events``."""
    history = history_of(path, body(path))
    for event in events:
        history.take(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event)))
    return history


START = {
    "type": "message_start",
    "message": {"id": "msg_1", "usage": {"input_tokens": 5, "cache_read_input_tokens": 2}},
}
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
CREATED = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}}


def block(kind: str) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind}}


def item(kind: str) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": 0, "item": {"type": kind, "id": "msg_1"}}


@pytest.mark.parametrize(
    ("path", "events", "why"),
    [
        ("/v1/messages", [START, block("thinking")], "its answer has reasoning"),
        ("/v1/messages", [START, block("tool_use")], "its answer has a tool call"),
        ("/v1/messages", [START, {"type": "new_kind"}], "an event of its engine cannot be understood"),
        ("/v1/messages", [START, {"type": "content_block_start"}], "an event of its engine cannot be understood"),
        ("/v1/responses", [CREATED, item("reasoning")], "its answer has reasoning"),
        ("/v1/responses", [CREATED, item("function_call")], "its answer has a tool call"),
        ("/v1/responses", [CREATED, item("message"), item("message")], "an event of its engine cannot be understood"),
    ],
)
def test_what_is_no_text_cannot_be_continued(path: str, events: list[dict[str, Any]], why: str) -> None:
    assert began(path, *events).why_not_movable() == why


@PATHS
def test_what_no_chat_can_say_is_not_continued(path: str) -> None:
    def refuse(_: bytes) -> bytes:
        raise InvalidRequest("it is kept elsewhere")

    answer = PROTOCOLS[path].typed_answer(path)
    assert answer is not None
    history = TypedHistory(answer, body(path), StreamTraits(), refuse, FakeShare())
    history.take(b": hello\n\n")
    assert history.why_not_movable() == "no chat can continue it: it is kept elsewhere"
    assert history.ending() is None


def test_the_tokens_of_a_prompt_are_those_before_and_in_the_cache() -> None:
    history = began("/v1/messages", START, TEXT, {"type": "ping"})
    assert (history.why_not_movable(), history.prompt_tokens, history.is_unanswered) == ("", 7, False)


def test_a_response_whose_text_is_not_kept_is_not_ended() -> None:
    history = began("/v1/responses", CREATED)
    history.write_piece(AnswerPiece("Hello"))
    with pytest.raises(AnswerDiffers):
        history.write_end(None)


def test_a_count_of_tokens_has_no_stream_to_continue() -> None:
    assert Messages().typed_answer("/v1/messages/count_tokens") is None


class FailingAnswer(MessageEvents):
    """Fails in one ``method``, as plugins may."""

    def __init__(self, method: str) -> None:
        super().__init__()
        setattr(self, method, self.fail)

    def fail(self, *_: Any) -> Any:
        raise ArithmeticError


class FailingProtocol(Messages):
    def typed_answer(self, path: str) -> TypedAnswer | None:
        raise ArithmeticError


def failing_history(method: str, *events: dict[str, Any]) -> TypedHistory:
    memory, chat = FakeShare(), partial(translation, "/v1/messages")
    history = TypedHistory(
        FailingAnswer(method), body("/v1/messages"), StreamTraits(), lambda raw: chat(raw).body, memory
    )
    for event in events:
        history.take(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event)))
    return history


def test_a_stream_whose_protocol_fails_to_read_it_is_not_continued() -> None:
    assert failing_history("read", START).why_not_movable() == "an event of its engine cannot be understood"


def test_a_protocol_that_fails_to_write_does_not_continue_the_stream() -> None:
    with pytest.raises(AnswerDiffers):
        failing_history("text", START).write_piece(AnswerPiece("Hello"))


def test_a_protocol_that_fails_to_end_a_stream_leaves_its_end_to_others() -> None:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    assert failing_history("end", START, TEXT, delta, end).ending() is None


def test_a_protocol_that_fails_at_once_continues_no_stream() -> None:
    assert typed_answer(FailingProtocol(), "/v1/messages") is None


def test_the_protocol_of_the_documentation_has_streams_that_go_on() -> None:
    [plugin, _] = re.findall(r"```python\n(.*?)```", (DOCS / "how-to" / "write-a-protocol.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(plugin, names)
    story = names["Story"]()

    def as_chat(asked: bytes) -> bytes:
        chat: bytes = story.translate(ProtocolRequest("/v1/story", asked, lambda _: True)).body
        return chat

    asked = b'{"model":"m","about":"a train","stream":true}'
    history = TypedHistory(story.typed_answer("/v1/story"), asked, StreamTraits(), as_chat, FakeShare())
    history.take(names["event_of"]("story.text", text="Once "))
    assert history.why_not_movable() == ""
    continuation = Continuation(path="/v1/chat/completions", body=b"", tokens=1)
    translator = ContinuationTranslator(history, continuation, StreamTraits())
    rest = b"".join(translator.translate(b"".join(chat(["upon "], 1, "stop"))))
    assert rest == names["event_of"]("story.text", text="upon ") + names["event_of"]("story.end", whole=True)
