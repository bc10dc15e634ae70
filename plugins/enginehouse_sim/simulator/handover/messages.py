"""The messages of a hand-over, one JSON line each."""

from __future__ import annotations

import msgspec

from enginehouse_sim.simulator.kv.remote_blocks import RemoteBlocks


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """The decoding engine asks for the blocks of a request."""

    request_id: str


class Offer(msgspec.Struct, frozen=True, tag=True):
    """The prefilling engine keeps them, at least as long as the connection is open."""

    blocks: RemoteBlocks


class Gone(msgspec.Struct, frozen=True, tag=True):
    """It does not, or not any more."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The decoding engine has loaded the blocks."""


Message = Fetch | Offer | Gone | Done


def encode(message: Message) -> bytes:
    """The line of a message."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Raises ``msgspec.DecodeError`` for anything else, and for a line cut short."""
    message: Message = msgspec.json.decode(line, type=Message)
    return message
