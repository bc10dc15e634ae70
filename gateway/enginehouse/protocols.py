"""Protocols of clients: requests and answers in other forms than OpenAI's."""

from __future__ import annotations

from enginehouse.interfaces.protocols import (
    ChatPiece,
    Envelope,
    Forwarded,
    Native,
    PageRequest,
    ProtocolRequest,
    Translation,
    TypedAnswer,
)

__all__ = [
    "ChatPiece",
    "Envelope",
    "Forwarded",
    "Native",
    "PageRequest",
    "ProtocolRequest",
    "Translation",
    "TypedAnswer",
]
