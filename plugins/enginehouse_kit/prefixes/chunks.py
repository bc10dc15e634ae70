"""A prompt as a chain of chunks: two prompts have a chunk in common if they are equal up to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import cast

from enginehouse import Body, Extractor, InferenceRequest, Requirements
from enginehouse.requests import Message, Part
from enginehouse_kit.prefixes.volatile_lines import without_volatile_lines
from enginehouse_kit.tool_results import result_parts

_CHARACTERS_PER_TOKEN = 4
_MOST_CHUNKS = 2048
"""Later chunks are ignored: hashing more would hold up the event loop."""
_KEY = "routing.chunks"
_SYSTEM_ROLES = frozenset({"system", "developer"})


class ChunkExtractor(Extractor):
    """Records the chunks of prompts of at least ``least`` tokens, for a strategy that returns it from ``extractors``.

    A chunk has ``tokens`` token ids, or four times as many characters of text. Only whole chunks count.
    """

    def __init__(self, tokens: int, least: int = 0) -> None:
        self._tokens = tokens
        self._least = least

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        if requirements.estimated_tokens >= self._least:
            pieces = (hash(piece) for piece in _pieces(request.body, self._tokens))
            chain = accumulate(pieces, _chained, initial=hash(request.body.model))
            requirements.extra[_KEY] = _Chunks(tuple(chain)[1:])


class _Chunks:
    """Explanations show how many there are."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Chunks) and self.numbers == other.numbers

    def __repr__(self) -> str:
        return f"{len(self.numbers)} chunks"


def chunks_of(requirements: Requirements) -> Sequence[int]:
    """Return the chunks that ``ChunkExtractor`` recorded, as numbers that are valid only in this process."""
    noted: _Chunks | None = requirements.extra.get(_KEY)
    return noted.numbers if noted is not None else ()


def _chained(before: int, piece: int) -> int:
    return hash((before, piece))


def text_or_ids(body: Body) -> str | Sequence[int]:
    """All the text of a prompt, or its token ids; of several prompts none is looked up."""
    ids = ids_of(body)
    return "".join([text for _, text in sections_of(body)]) if ids is None else ids


def ids_of(body: Body) -> Sequence[int] | None:
    """The token ids of a prompt, none of several prompts; ``None`` if it is text."""
    for prompt in (body.prompt, body.input):
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], Message):
            return cast("list[int]", prompt) if isinstance(prompt[0], int) else ()
    return None


def sections_of(body: Body) -> list[tuple[str, str]]:
    """The texts of a prompt in the order of chat templates, tools first, without volatile lines; each with its name.

    Names are ``tools``, ``system``, and ``message:N`` for the one at index ``N`` of the messages.
    """
    sections = [("tools", bytes(tool).decode(errors="replace")) for tool in body.tools or ()]
    sections += [
        ("system", without_volatile_lines(text))
        for text in (*_in_content(body.system), body.instructions)
        if isinstance(text, str)
    ]
    sections += [("message:0", text) for text in (body.prompt, body.input) if isinstance(text, str)]
    for given in (body.messages, body.input):
        leads = True
        for place, message in enumerate(given if isinstance(given, list) else ()):
            if isinstance(message, Message):
                role, content = message.role, message.content or result_parts(message.output)
                leads = leads and role in _SYSTEM_ROLES
                if leads:
                    content = "".join([without_volatile_lines(text) for text in _in_content(content)])
                elif not isinstance(content, str):
                    content = "".join(_in_content(content))
                sections.append(("system" if leads else f"message:{place}", f"\n{role}\n{content}"))
    return sections


def _pieces(body: Body, tokens: int) -> Iterator[str | tuple[object, ...]]:
    content = text_or_ids(body)
    if isinstance(content, str):
        size = _CHARACTERS_PER_TOKEN * tokens
        yield from (content[end - size : end] for end in _ends(len(content), size))
    else:
        yield from (tuple(content[end - tokens : end]) for end in _ends(len(content), tokens))


def _ends(length: int, size: int) -> range:
    """The ends of the whole chunks."""
    return range(size, min(length, _MOST_CHUNKS * size) + 1, size)


def _in_content(content: str | Sequence[Part] | None) -> list[str]:
    if isinstance(content, str):
        return [content]
    texts: list[str] = []
    for part in content or ():
        if part.text is not None:
            texts.append(part.text)
        elif part.content and part.type == "tool_result":
            texts += _in_content(result_parts(part.content))
    return texts
