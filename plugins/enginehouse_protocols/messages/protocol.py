"""The protocol of https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from enginehouse import Protocol
from enginehouse.protocols import Envelope, ProtocolRequest, Translation, TypedAnswer
from enginehouse_protocols.fields import read
from enginehouse_protocols.messages.answer import CountedTokens, error_object
from enginehouse_protocols.messages.native import MessageEvents
from enginehouse_protocols.messages.request import MessagesBody, chat_fields
from enginehouse_protocols.messages.stream import MessageTranslation


class Messages(Protocol):
    """Anthropic's Messages."""

    name: ClassVar[str] = "messages"
    paths = ("/v1/messages", "/v1/messages/count_tokens")

    def translate(self, request: ProtocolRequest) -> Translation:
        """The request as a chat. Counting the tokens of a prompt asks for one token of an answer."""
        body = read(request.body, MessagesBody)
        if request.path.endswith("/count_tokens"):
            return CountedTokens(chat_fields(body) | {"max_tokens": 1, "stream": False})
        return MessageTranslation(body.model, chat_fields(body))

    def typed_answer(self, path: str) -> TypedAnswer | None:
        return None if path.endswith("/count_tokens") else MessageEvents()

    def error(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode(error_object(status, envelope))
