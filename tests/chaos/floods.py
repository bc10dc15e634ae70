"""Engines that say far more than anybody asked for."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from tests.chaos.answers import Answer, chunked, whole

WORDS = (b"no line ends here " * 20_000, b"\n" * 50_000, b"many lines\n" * 20_000, b"\xff\x00\r" * 20_000)
"""What a flooding engine prints."""
_ITEM = b'"%s",' % (b"z" * (1 << 18))
_ITEMS = 40
_LISTS = 4 << 20
_PER_BYTE = 16
_ON_ITS_WAY = 1 << 20


class Flood(NamedTuple):
    """The pieces of an answer to a question about the engine, which lasts longer than the gateway may read.

    ``most``: so many bytes the gateway reads, or are on their way to it, when it turns away.
    """

    pieces: tuple[bytes, ...]
    most: int


def make_flood(rng: random.Random, question: bytes) -> Flood:
    """An endless list in JSON. ``question``: the body of the gateway's request."""
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n" % rng.choice((200, 200, 404, 500, 503))
    if rng.random() < 0.5:
        head, item = head + b"content-length: 999999999999\r\n\r\n[", _ITEM
    else:
        head, item = head + b"transfer-encoding: chunked\r\n\r\n1\r\n[\r\n", b"%x\r\n%s\r\n" % (len(_ITEM), _ITEM)
    return Flood((head, *[item] * _ITEMS), _LISTS + _PER_BYTE * len(question) + _ON_ITS_WAY)


def large(rng: random.Random, answer: Answer, serving: str) -> Answer:
    """An answer of megabytes, or a stream whose events have many kilobytes: whole and right all the same."""
    padding = b"z" * rng.choice((20_000, 200_000))
    if not answer.text.startswith((b"data: ", b"event: ")):
        return whole(answer.status, b'{"id": "%s", "text": "%s"}' % (serving.encode(), 10 * padding))
    word = re.compile(rb"\b%s\.\d+ " % re.escape(serving.encode()))
    events = [event + b"\n\n" for event in answer.text.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]][:13]
    padded = [word.sub(lambda found: found[0] + padding, event) for event in events]
    return chunked(answer.status, padded, [0.0] * len(padded), b"text/event-stream")


def large_failure(rng: random.Random, answer: Answer, serving: str) -> Answer:
    """A failure whose body is an essay."""
    status = rng.choice((400, 404, 429, 500, 503))
    text = b'{"error": {"message": "no %s, %s"}}' % (serving.encode(), b"z" * rng.choice((50_000, 1_500_000)))
    middle = len(text) // 2
    if rng.random() < 0.5:
        return whole(status, text)
    return chunked(status, [text[:middle], text[middle:]], [0.0, 0.05], b"application/json")
