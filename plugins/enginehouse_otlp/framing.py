"""The frames of messages on a pipe: four bytes of length, then MessagePack."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from enginehouse_otlp.messages import Message

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def frame(message: Message) -> bytes:
    """``message`` as it goes through the pipe."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


def read_frame(pipe: BinaryIO) -> Message | None:
    """The next message; ``None`` at the end, even in the middle of one: the gateway may have been killed."""
    head = pipe.read(4)
    length = int.from_bytes(head, "big")
    body = pipe.read(length) if len(head) == 4 else b""
    return _decoder.decode(body) if len(head) == 4 and len(body) == length else None
