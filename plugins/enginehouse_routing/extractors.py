"""Extractors: read a request's requirements from its body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from enginehouse import Extractor, InferenceRequest, Requirements
from enginehouse.requests import Input, Message, Part
from enginehouse_routing.structs import Document

LONGEST_TOKENS: Final = "routing.longest_tokens"
"""Key of ``Requirements.extra``: the tokens of the longest text, where several texts do not share a context."""

_CHARACTERS_PER_TOKEN: Final = 4
_TEXT: Final = frozenset({"text", "input_text", "output_text"})
_IMAGE: Final = frozenset({"image_url", "input_image", "image"})
_JSON: Final = frozenset({"json_object", "json_schema"})
_read_document: Final = msgspec.json.Decoder(str | Document).decode


class TokensExtractor(Extractor):
    """Estimates the tokens of a request: a quarter of its characters. A token id counts as one token."""

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        """Set ``estimated_tokens``, and ``LONGEST_TOKENS`` for several texts that the engine serves one by one."""
        body = request.body
        characters = _in_messages(body.messages) if body.messages else 0
        if body.system:
            characters += _in_content(body.system)
        if body.prompt or body.input or body.documents or body.query:
            characters += sum(len(text) for text in (body.query, body.instructions) if isinstance(text, str))
            texts = [*_in_input(body.prompt), *_in_input(body.input), *map(_in_document, body.documents or ())]
            if len(texts) > 1:
                requirements.extra[LONGEST_TOKENS] = (characters + max(texts)) // _CHARACTERS_PER_TOKEN
            characters += sum(texts)
        requirements.estimated_tokens = characters // _CHARACTERS_PER_TOKEN

    def joined(self, following: Sequence[Extractor]) -> Extractor | None:
        known = len(_FOLLOWING)
        if [type(each) for each in following[:known]] != _FOLLOWING:
            return None
        return AllExtractors((self, *following[:known]), following[known:])


class VisionExtractor(Extractor):
    """Sets ``needs_vision`` for a request with an image: chat completions, responses or Anthropic messages."""

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        body = request.body
        if _shows_image(body.messages or _messages_of(body.input)):
            requirements.needs_vision = True


class ToolsExtractor(Extractor):
    """Sets ``needs_tools`` for a request that offers tools."""

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        if request.body.tools:
            requirements.needs_tools = True


class JsonModeExtractor(Extractor):
    """Sets ``needs_json_mode`` for a request whose answer must be a JSON object, with or without a schema."""

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        body = request.body
        if body.response_format is not None:
            requirements.needs_json_mode = body.response_format.type in _JSON
        elif isinstance(body.text, dict) and isinstance(wanted := body.text.get("format"), dict):  # Responses
            requirements.needs_json_mode = wanted.get("type") in _JSON


_FOLLOWING: Final = [VisionExtractor, ToolsExtractor, JsonModeExtractor]


class AllExtractors(Extractor):
    """Runs the extractors of this plugin, and then the ``following`` ones.

    It runs for every request, so it does the work of the ``own`` ones in one pass if a request is a chat of plain
    texts, as most are.
    """

    def __init__(self, own: Sequence[Extractor], following: Sequence[Extractor]) -> None:
        self._following = [extractor.extract for extractor in following]
        self._all = [*(extractor.extract for extractor in own), *self._following]
        self._json_mode = own[-1]

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        body = request.body
        messages, characters = body.messages or [], 0
        plain = not (body.system or body.prompt or body.input or body.documents or body.query) and len(messages) > 0
        for message in messages:
            content = message.content
            if type(content) is not str or message.type or message.text:
                plain = False
                break
            characters += len(content)
        if plain:
            requirements.estimated_tokens = characters // _CHARACTERS_PER_TOKEN
            if body.tools:
                requirements.needs_tools = True
            if body.response_format is not None or body.text is not None:
                self._json_mode.extract(request, requirements)
        for extract in self._following if plain else self._all:
            extract(request, requirements)


def _in_messages(messages: Sequence[Message]) -> int:
    characters = 0
    for message in messages:
        content = message.content
        if content:
            characters += len(content) if isinstance(content, str) else _in_content(content)
        elif message.text and message.type in _TEXT:
            characters += len(message.text)
    return characters


def _in_content(content: str | Sequence[Part]) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(part.text) for part in content if part.text and part.type in _TEXT)


def _in_input(given: Input) -> list[int]:
    """The characters of each text of a prompt or input. A list of token ids is one text, and so is a conversation."""
    if not given:
        return []
    if isinstance(given, str):
        return [len(given)]
    if isinstance(given[0], int):
        return [_CHARACTERS_PER_TOKEN * len(given)]
    if isinstance(given[0], Message):
        return [_in_messages(_messages_of(given))]
    return [
        len(text) if isinstance(text, str) else _CHARACTERS_PER_TOKEN * len(text)
        for text in given
        if isinstance(text, (str, list))
    ]


def _in_document(document: msgspec.Raw) -> int:
    """The characters of a document to rerank."""
    try:
        text = _read_document(document)
    except ValueError:  # of another type: the engine decides whether that is an error
        return 0
    return len(text if isinstance(text, str) else text.text or "")


def _messages_of(given: Input) -> list[Message]:
    """The items of ``given`` if it is a conversation, else none."""
    if isinstance(given, list) and given and isinstance(given[0], Message):
        return [item for item in given if isinstance(item, Message)]
    return []


def _shows_image(messages: Sequence[Message]) -> bool:
    for message in messages:
        if message.type in _IMAGE:
            return True
        content = message.content
        if content and not isinstance(content, str) and any(part.type in _IMAGE for part in content):
            return True
    return False
