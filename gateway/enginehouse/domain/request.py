"""A client's request, as far as a decision may read it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

Headers = list[tuple[bytes, bytes]]
"""Header lines in the order received, names in lower case."""


class Part(msgspec.Struct):
    """One piece of a multipart content: ``text`` is set where the piece is text."""

    type: str = "text"
    text: str | None = None


class Message(msgspec.Struct):
    """One message, or one item of a Responses input."""

    content: str | list[Part] | None = None
    role: str = ""
    type: str = ""
    text: str | None = None


class ResponseFormat(msgspec.Struct):
    """``response_format`` of a chat request."""

    type: str = "text"


Input = str | list[str | int | list[int] | Message] | None
"""Text, several texts, token ids, or the items of a Responses input."""


class Body(msgspec.Struct):
    """The fields of a request body that decisions read, whatever the endpoint.

    Everything else in the body is neither looked at nor changed.
    """

    model: str
    messages: list[Message] | None = None
    system: str | list[Part] | None = None
    prompt: Input = None
    input: Input = None
    instructions: Any = None
    query: Any = None
    documents: list[msgspec.Raw] | None = None
    tools: list[msgspec.Raw] | None = None
    response_format: ResponseFormat | None = None
    text: Any = None
    stream: bool | None = None


class InferenceRequest:
    """What an extractor sees: the endpoint's path, the headers, the body as it came and as far as it was read."""

    def __init__(self, path: str, headers: Headers, raw: bytes, body: Body) -> None:
        self.path = path
        self.headers = headers
        self.raw = raw
        self.body = body

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header ``name`` (lower case), or ``None``."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @cached_property
    def json(self) -> dict[str, Any]:
        """The whole body, decoded on first use, for extractors that need a field of their own."""
        decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        return decoded
