"""The messages of a hand-over, one JSON line each."""

from __future__ import annotations

import msgspec

from enginehouse_sim.simulator.kv.remote_blocks import RemoteBlocks


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """The decoding engine asks for the blocks of a request."""

    request_id: str


class Offer(msgspec.Struct, frozen=True, tag=True):
    """The prefilling engine keeps the blocks, at least while the connection is open."""

    blocks: RemoteBlocks


class Gone(msgspec.Struct, frozen=True, tag=True):
    """The prefilling engine does not keep them, or no longer does."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The decoding engine has loaded the blocks."""


Message = Fetch | Offer | Gone | Done


def encode(message: Message) -> bytes:
    """The line of a message, as UTF-8 JSON."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line. Raises ``msgspec.DecodeError`` for any other line, such as one cut short."""
    message: Message = msgspec.json.decode(line, type=Message)
    return message
