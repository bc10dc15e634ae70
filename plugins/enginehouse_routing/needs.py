"""What requests need, and which candidates can serve them: extractors and filters. Compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import msgspec

from enginehouse import Candidate, Extractor, Filter, Health, InferenceRequest, Requirements
from enginehouse.requests import Input, Message, Part
from enginehouse_kit.tool_results import result_parts
from enginehouse_routing.structs import Document, ErrorShareConfig

LONGEST_TOKENS: Final = "routing.longest_tokens"
"""Key of ``Requirements.extra``: the tokens of the longest text, where several texts do not share a context."""

_CHARACTERS_PER_TOKEN: Final = 4
_TEXT: Final = frozenset({"text", "input_text", "output_text"})
_IMAGE: Final = frozenset({"image_url", "input_image", "image"})
_RESULT: Final = "tool_result"
_JSON: Final = frozenset({"json_object", "json_schema"})
_HEALTHY: Final = Health.HEALTHY
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
        elif message.output:
            characters += _in_content(result_parts(message.output))
    return characters


def _in_content(content: str | Sequence[Part]) -> int:
    if isinstance(content, str):
        return len(content)
    characters = 0
    for part in content:
        if part.text and part.type in _TEXT:
            characters += len(part.text)
        elif part.content and part.type == _RESULT:
            characters += _in_content(result_parts(part.content))
    return characters


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
        content = message.content or result_parts(message.output)
        if not isinstance(content, str) and any(map(_has_image, content)):
            return True
    return False


def _has_image(part: Part) -> bool:
    return part.type in _IMAGE or (part.type == _RESULT and any(map(_has_image, result_parts(part.content))))


class HealthFilter(Filter):
    """Keeps the replicas of healthy backends that are not being drained.

    If there are none, it keeps those that serve requests but answer their health checks late: an engine that computes a
    long prompt may do nothing else.
    """

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [each for each in candidates if each.health is _HEALTHY and not each.draining] or [
            each for each in candidates if each.late and each.load.pending and not each.draining
        ]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        if candidate.health is Health.UNKNOWN:
            return f"backend '{candidate.backend}' has not been checked yet"
        if candidate.health is Health.UNHEALTHY:
            return f"backend '{candidate.backend}' is unhealthy" + (
                f": {candidate.problem}" if candidate.problem else ""
            )
        return f"backend '{candidate.backend}' is being drained"

    def joined(self, following: Sequence[Filter]) -> Filter | None:
        types = [type(each) for each in following]
        return (
            AllFilters((self, *following)) if types == [CapabilitiesFilter, ContextLengthFilter, PausedFilter] else None
        )


class CapabilitiesFilter(Filter):
    """Drops replicas known to lack the vision, tools or JSON mode that a request needs."""

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if requirements.needs_vision:
            candidates = [candidate for candidate in candidates if candidate.capabilities.vision is not False]
        if requirements.needs_tools:
            candidates = [candidate for candidate in candidates if candidate.capabilities.tools is not False]
        if requirements.needs_json_mode:
            candidates = [candidate for candidate in candidates if candidate.capabilities.json_mode is not False]
        return candidates

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"lacks {', '.join(self.missing(requirements, candidate))}"

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        return [name for name in _needs(requirements) if getattr(candidate.capabilities, name) is False]


class ContextLengthFilter(Filter):
    """Drops replicas whose context is known to be too short for the request's estimated tokens."""

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        tokens = _tokens(requirements)
        return [
            candidate
            for candidate in candidates
            if (length := candidate.capabilities.context_length) is None or length >= tokens
        ]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"about {_tokens(requirements)} tokens do not fit into {candidate.capabilities.context_length}"

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        return () if self.keep(requirements, [candidate]) else ("context_length",)


class PausedFilter(Filter):
    """Prefers replicas that are not paused. Engines are paused that asked for it, or refused what others serve."""

    prefers: ClassVar[bool] = True

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [candidate for candidate in candidates if not candidate.paused]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return candidate.paused


class ErrorShareFilter(Filter):
    """Prefers replicas of engines with few bad answers in the last two minutes. Others get only probes meanwhile."""

    Config: ClassVar[type[ErrorShareConfig]] = ErrorShareConfig
    prefers: ClassVar[bool] = True

    def __init__(self, config: ErrorShareConfig) -> None:
        self._most = config.most

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [candidate for candidate in candidates if candidate.load.error_share <= self._most]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"{candidate.load.error_share:.0%} of its last answers were bad, more than {self._most:.0%}"


class AllFilters(Filter):
    """Keeps what the first four filters of this plugin keep, in one pass if the request needs no capability.

    It runs for every request. Candidates never change but for their load, so it remembers of each model's last ones, if
    all of them may serve, the shortest context among them.
    """

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = filters
        self._last: dict[str, tuple[tuple[Candidate, ...], float]] = {}

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if requirements.needs_vision or requirements.needs_tools or requirements.needs_json_mode:
            for filter in self._filters:
                candidates = filter.keep(requirements, candidates)
            return candidates
        tokens: int = requirements.extra.get(LONGEST_TOKENS, requirements.estimated_tokens)
        last = self._last.get(requirements.model)
        if last is not None and last[0] is candidates and tokens <= last[1]:
            return candidates
        kept = [
            candidate
            for candidate in candidates
            if candidate.health is _HEALTHY
            and not candidate.draining
            and not candidate.paused
            and ((length := candidate.capabilities.context_length) is None or length >= tokens)
        ]
        if kept and len(kept) == len(candidates) and isinstance(candidates, tuple):
            self._remember(candidates)
        return kept

    def _remember(self, candidates: tuple[Candidate, ...]) -> None:
        lengths = [candidate.capabilities.context_length for candidate in candidates]
        shortest = min([float("inf") if length is None else length for length in lengths])
        self._last[candidates[0].model] = candidates, shortest

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        """The reason of the first filter that drops ``candidate``."""
        dropping = (filter for filter in self._filters if not filter.keep(requirements, [candidate]))
        return next((filter.why(requirements, candidate) for filter in dropping), "")


def _needs(requirements: Requirements) -> Iterator[str]:
    if requirements.needs_vision:
        yield "vision"
    if requirements.needs_tools:
        yield "tools"
    if requirements.needs_json_mode:
        yield "json_mode"


def _tokens(requirements: Requirements) -> int:
    """The tokens that must fit into one context."""
    tokens: int = requirements.extra.get(LONGEST_TOKENS, requirements.estimated_tokens)
    return tokens
