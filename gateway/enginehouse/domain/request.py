"""What a client's request says."""

from __future__ import annotations

from typing import Any

import msgspec

Headers = list[tuple[bytes, bytes]]
"""Header fields in the order received, names in lower case."""


class RepeatedHeaders(list[tuple[bytes, bytes]]):
    """The ``Headers`` of a head of at most 4 KiB, in which only the length and the ids differ from an earlier one.

    ``request_id``: the client's, or empty. ``traceparent``: its value; empty if there is none, or several.
    ``passing`` and ``wants_cache_line``: what was found out of heads like it, see ``AlikeHeads``.
    """

    __slots__ = ("passing", "request_id", "traceparent", "wants_cache_line")

    request_id: bytes
    traceparent: bytes
    passing: dict[frozenset[bytes], tuple[bytes, bytes]]
    wants_cache_line: bool


class Part(msgspec.Struct):
    """One part of a message's content. ``text`` is ``None`` for an image or another part without text.

    ``content``: what a tool returned, in Anthropic's ``tool_result``.
    """

    type: str = "text"
    text: str | None = None
    content: Any = None


class Message(msgspec.Struct):
    """One message of a chat, or one item of a Responses API input. ``output``: what a tool returned."""

    content: str | list[Part] | None = None
    role: str = ""
    type: str = ""
    text: str | None = None
    output: Any = None


class ResponseFormat(msgspec.Struct):
    """``response_format`` of a chat request."""

    type: str = "text"


Input = str | list[str | int | list[int] | Message] | None
"""Text, several texts, token ids, several lists of token ids, or the items of a Responses API input."""


class Body(msgspec.Struct):
    """The decoded fields of a request body, for all endpoints.

    The gateway forwards the body as received, also with fields that are not listed here.
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
    user: Any = None
    safety_identifier: Any = None
    metadata: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None


class NamedModel(msgspec.Struct):
    """The only field of a body that matters before it is read."""

    model: str = ""
