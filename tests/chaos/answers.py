"""What engines answer, whole and broken, as bytes on the wire."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Ending = Literal["keep", "close", "reset", "stall"]


class Answer(NamedTuple):
    """An answer on its way: ``pieces`` with the pause before each, then the ``ending`` of the connection.

    ``bodies`` are the bodies that a client may take for complete, ``text`` is the body as it was meant.
    """

    status: int
    pieces: tuple[tuple[float, bytes], ...]
    bodies: tuple[bytes, ...]
    ending: Ending = "keep"
    text: bytes = b""

    @property
    def wire(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


def events(path: str, serving: str, count: int) -> list[bytes]:
    """The events of a stream, each with the text of this serving, the endpoint's own last event included."""
    words = [f"{serving}.{number} " for number in range(count)]
    if path == "/v1/messages":
        texts = [{"delta": {"type": "text_delta", "text": word}} for word in words]
        return _typed("message_start", "content_block_delta", texts, "message_stop")
    if path == "/v1/responses":
        return _typed(
            "response.created", "response.output_text.delta", [{"delta": w} for w in words], "response.completed"
        )
    key = "text" if path == "/v1/completions" else "delta"
    choices = [{"index": 0, key: word if key == "text" else {"content": word}} for word in words]
    said = [f"data: {json.dumps({'id': serving, 'choices': [choice]})}\n\n".encode() for choice in choices]
    return [*said, b"data: [DONE]\n\n"]


def _typed(first: str, kind: str, middle: Sequence[Mapping[str, object]], last: str) -> list[bytes]:
    every: list[Mapping[str, object]] = [{"type": first}, *({"type": kind, **each} for each in middle), {"type": last}]
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in every]


def document(serving: str, size: int) -> bytes:
    """A whole JSON answer."""
    text = f"{serving} " * size
    return json.dumps({"id": serving, "choices": [{"index": 0, "message": {"content": text}}]}).encode()


def refusal(status: int, serving: str) -> Answer:
    """An engine's own error."""
    body = json.dumps({"error": {"message": f"no {serving}", "type": "engine", "code": status}}).encode()
    more = b"retry-after: 1\r\n" if status in (429, 503) else b""
    return whole(status, body, more)


def whole(status: int, body: bytes, more: bytes = b"", pause: float = 0.0) -> Answer:
    """An answer whose length is known."""
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n" % (
        status,
        more,
        len(body),
    )
    return Answer(status, ((pause, head + body),), (body,), text=body)


def chunked(status: int, pieces: list[bytes], pauses: list[float], kind: bytes, more: bytes = b"") -> Answer:
    """An answer in chunks, one for each piece."""
    head = b"HTTP/1.1 %d OK\r\ncontent-type: %s\r\n%stransfer-encoding: chunked\r\n\r\n" % (status, kind, more)
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    sent = [(0.0, head), *zip(pauses, chunks, strict=True), (0.0, b"0\r\n\r\n")]
    text = b"".join(pieces)
    return Answer(status, tuple(sent), (text,), text=text)


def until_close(status: int, pieces: list[bytes], pauses: list[float], kind: bytes) -> Answer:
    """An answer that the end of the connection ends."""
    head = b"HTTP/1.1 %d OK\r\ncontent-type: %s\r\nconnection: close\r\n\r\n" % (status, kind)
    text = b"".join(pieces)
    return Answer(status, ((0.0, head), *zip(pauses, pieces, strict=True)), (text,), "close", text)


def make_answer(rng: random.Random, path: str, stream: bool, serving: str) -> Answer:
    """Any answer that is whole and right."""
    if stream:
        said = events(path, serving, rng.choice((1, 2, 5, 12, 60)))
        if rng.random() < 0.1:
            said = [event.replace(b"\n", b"\r\n") for event in said]
        if rng.random() < 0.2:
            said.insert(rng.randrange(len(said)), b": a comment\n\n")
        slow = rng.choice((0.0, 0.01, 0.1))
        pauses = [rng.uniform(0, slow) for _ in said]
        if rng.random() < 0.3:  # events that are cut anywhere
            said, pauses = _cut_anywhere(rng, said, slow)
        make = until_close if rng.random() < 0.15 else chunked
        return make(200, said, pauses, b"text/event-stream")
    body = document(serving, rng.choice((1, 3, 50, 50, 4000)))
    if rng.random() < 0.5:
        return whole(200, body, pause=rng.uniform(0, 0.2))
    cut = rng.randrange(len(body))
    make = until_close if rng.random() < 0.3 else chunked
    return make(
        200,
        [body[:cut] or b" ", body[max(cut, 1) :]] if cut else [body],
        [0.0, 0.1][: 2 if cut else 1],
        b"application/json",
    )


def _cut_anywhere(rng: random.Random, said: list[bytes], slow: float) -> tuple[list[bytes], list[float]]:
    text = b"".join(said)
    cuts = sorted({0, len(text), *(rng.randrange(1, len(text)) for _ in range(rng.randint(1, 12)))})
    pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
    return pieces, [rng.uniform(0, slow) for _ in pieces]
