"""The protocol of https://platform.openai.com/docs/api-reference/responses."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from enginehouse import Envelope, Protocol, ProtocolRequest, Translation
from enginehouse_protocols.fields import read
from enginehouse_protocols.responses.request import ResponsesBody, chat_fields
from enginehouse_protocols.responses.stream import ResponseTranslation


class Responses(Protocol):
    """OpenAI's Responses, each of which brings its whole conversation."""

    name: ClassVar[str] = "responses"
    paths = ("/v1/responses",)

    def translate(self, request: ProtocolRequest) -> Translation:
        body = read(request.body, ResponsesBody)
        return ResponseTranslation(body, chat_fields(body))

    def error(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode(envelope)
