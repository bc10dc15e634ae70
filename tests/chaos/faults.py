"""What goes wrong between the gateway and an engine: each fault breaks a whole answer."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

from tests.chaos.answers import Answer, Ending, chunked, refusal, whole
from tests.chaos.floods import large, large_failure

Fault = Callable[[random.Random, Answer, str], Answer]
LONG_S = 30.0
"""Longer than any time limit of the bench's configurations."""
OWN_ERROR = b'data: {"error": {"message": "no"}}\n\n'
NO_JSON = b"data: {nonsense\n\n"


def _cut(answer: Answer, at: int, ending: Ending) -> Answer:
    """``answer`` up to byte ``at``, then ``ending``."""
    left = at
    pieces: list[tuple[float, bytes]] = []
    for pause, piece in answer.pieces:
        if left <= 0:
            break
        pieces.append((pause, piece[:left]))
        left -= len(piece)
    return Answer(answer.status, tuple(pieces), (), ending, answer.text)


def _head(answer: Answer) -> int:
    return answer.wire.index(b"\r\n\r\n") + 4


def _before_head(ending: Ending) -> Fault:
    return lambda rng, answer, _: _cut(answer, 0, ending)


def _in_head(ending: Ending) -> Fault:
    return lambda rng, answer, _: _cut(answer, rng.randrange(1, _head(answer)), ending)


def _after_head(ending: Ending) -> Fault:
    return lambda rng, answer, _: _cut_body(answer, _head(answer), ending)


def _cut_body(answer: Answer, at: int, ending: Ending) -> Answer:
    cut, head = _cut(answer, at, ending), _head(answer)
    if ending != "close" or b"connection: close" not in answer.wire[:head]:
        return cut
    return cut._replace(bodies=(cut.wire[head:],))  # nobody can see that something is missing


def _in_body(ending: Ending) -> Fault:
    def fault(rng: random.Random, answer: Answer, _: str) -> Answer:
        return _cut_body(answer, rng.randint(_head(answer) + 1, max(_head(answer) + 1, len(answer.wire) - 1)), ending)

    return fault


def _with_head(change: Callable[[bytes], bytes]) -> Fault:
    """The head, or what is put before it, is malformed: nothing of this may reach a client as complete."""

    def fault(rng: random.Random, answer: Answer, _: str) -> Answer:
        wire, end = answer.wire, _head(answer)
        return Answer(answer.status, ((0.0, change(wire[:end]) + wire[end:]),), (), "close")

    return fault


def _wrong_length(by: int) -> Fault:
    def fault(rng: random.Random, answer: Answer, serving: str) -> Answer:
        body = f'{{"id": "{serving}", "wrong": "length"}}'.encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (len(body) + by)
        taken = (body[:by],) if by < 0 else ()
        return Answer(200, ((0.0, head + body),), taken, "close" if by > 0 else "keep")

    return fault


def _bad_chunk(rng: random.Random, answer: Answer, serving: str) -> Answer:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    size = rng.choice((b"xyz", b"-1", b"5;\n", b"fffffffffffffffff", b" 5", b"0x5"))
    return Answer(200, ((0.0, head + b"3\r\n{} \r\n" + size + b"\r\nhello\r\n0\r\n\r\n"),), (), "keep")


def _informational(rng: random.Random, answer: Answer, _: str) -> Answer:
    first = rng.choice((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"))
    return answer._replace(pieces=((0.0, first * rng.randint(1, 3)), *answer.pieces))


def _long_head(rng: random.Random, answer: Answer, _: str) -> Answer:
    long = b"\r\nx-long: %s\r\n" % (b"z" * rng.choice((1000, 70_000)))
    (pause, first), *others = answer.pieces
    return answer._replace(pieces=((pause, first.replace(b"\r\n", long, 1)), *others))


def _events(change: Callable[[list[bytes]], list[bytes]]) -> Fault:
    """Other events than those that were meant; any other answer stays as it is."""

    def fault(rng: random.Random, answer: Answer, serving: str) -> Answer:
        if not answer.text.startswith((b"data: ", b"event: ", b": ")):
            return answer
        events = [event + b"\n\n" for event in answer.text.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]]
        return chunked(200, changed := change(events), [0.0] * len(changed), b"text/event-stream")

    return fault


def _gzipped(rng: random.Random, answer: Answer, serving: str) -> Answer:
    body = gzip.compress(answer.text, mtime=0)
    return chunked(200, [body], [0.0], b"application/json", b"content-encoding: gzip\r\n")


def _garbage_after(rng: random.Random, answer: Answer, _: str) -> Answer:
    if answer.ending != "keep":
        return answer
    more = rng.choice((b"HTTP/1.1", b"\r\n", b"\x00\x01 garbage"))  # a whole answer would pass for the next one
    return answer._replace(pieces=(*answer.pieces, (rng.choice((0.0, 0.05)), more)))


def _closes_afterwards(rng: random.Random, answer: Answer, _: str) -> Answer:
    return answer._replace(ending=rng.choice(("close", "reset"))) if answer.ending == "keep" else answer


def _late(rng: random.Random, answer: Answer, _: str) -> Answer:
    return answer._replace(pieces=((LONG_S, answer.pieces[0][1]), *answer.pieces[1:]))


def _pauses(rng: random.Random, answer: Answer, _: str) -> Answer:
    """Pauses that are shorter than the time limits."""
    return answer._replace(pieces=tuple((pause + rng.uniform(0, 0.3), piece) for pause, piece in answer.pieces))


def _status(*statuses: int) -> Fault:
    return lambda rng, answer, serving: refusal(rng.choice(statuses), serving)


def _no_content(rng: random.Random, answer: Answer, _: str) -> Answer:
    return Answer(204, ((0.0, b"HTTP/1.1 204 No Content\r\n\r\n"),), (b"",))


def _empty(rng: random.Random, answer: Answer, _: str) -> Answer:
    return whole(200, b"")


FAULTS: dict[str, Fault] = {
    **{f"{how} before the head": _before_head(how) for how in ("close", "reset", "stall")},
    **{f"{how} in the head": _in_head(how) for how in ("close", "reset", "stall")},
    **{f"{how} after the head": _after_head(how) for how in ("close", "reset", "stall")},
    **{f"{how} in the body": _in_body(how) for how in ("close", "reset", "stall")},
    "not HTTP": _with_head(lambda head: b"\x16\x03\x01garbage\r\n\r\n"),
    "no status": _with_head(lambda head: head.replace(b"HTTP/1.1 ", b"HTTP/1.1 x", 1)),
    "status out of range": _with_head(lambda head: b"HTTP/1.1 099 No" + head[head.index(b"\r\n") :]),
    "two lengths": _with_head(lambda head: b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"),
    "length and chunks": _with_head(
        lambda head: b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"
    ),
    "unknown coding": _with_head(lambda head: b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n"),
    "header without a colon": _with_head(lambda head: head[:-2] + b"nonsense\r\n\r\n"),
    "control character": _with_head(lambda head: head[:-2] + b"x-a: b\x00c\r\n\r\n"),
    "too short": _wrong_length(+7),
    "too long": _wrong_length(-7),
    "bad chunk": _bad_chunk,
    "informational": _informational,
    "long head": _long_head,
    "no last event": _events(lambda events: events[:-1]),
    "an error event of its own": _events(lambda events: [*events[:-1], OWN_ERROR]),
    "an event that is not JSON": _events(lambda events: [*events[:-1], NO_JSON, events[-1]]),
    "gzip": _gzipped,
    "garbage after the answer": _garbage_after,
    "closes afterwards": _closes_afterwards,
    "late": _late,
    "pauses": _pauses,
    "busy": _status(429, 503),
    "failure": _status(500, 502, 504),
    "refusal": _status(400, 404, 422),
    "large": large,
    "large failure": large_failure,
    "no content": _no_content,
    "empty": _empty,
}
