"""A prompt in two sizes of chunks, for the shared index: coarse ones first, fine ones where prompts part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from zlib import crc32

from enginehouse.domain.request import Body, InferenceRequest
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.extractors import Extractor
from enginehouse.routing.prefixes.chunks import text_or_ids

_KEY: Final = "routing.prompt"
FINE_TOKENS: Final = 64
"""Tokens in a fine chunk; blocks of engines have 16 to 64. A token stands for four characters of text."""
FINE_IN_COARSE: Final = 16
COARSE_TOKENS: Final = FINE_TOKENS * FINE_IN_COARSE
_MOST_COARSE: Final = 2048
"""Two million tokens. More is not looked at: hashing it would hold up the event loop."""


class Prompt:
    """The chunks of one prompt. Two prompts have a chunk in common if they are equal up to its end.

    ``coarse``: the whole coarse chunks, as numbers, the same in every process. ``tail``: the whole fine chunks
    after the last coarse one. ``length``: of the whole prompt, in characters or token ids. ``raw``: the body of its
    request.
    """

    __slots__ = ("_content", "_fine", "_root", "_size", "coarse", "length", "raw", "tail")

    def __init__(self, model: str, content: str | Sequence[int], raw: bytes = b"") -> None:
        self._content = content
        self.length = len(content)
        self.raw = raw
        self._size = size = 4 * FINE_TOKENS if isinstance(content, str) else FINE_TOKENS
        self._fine: dict[int, list[int]] = {}
        self._root = chunk = _chained(0, model)
        whole = size * FINE_IN_COARSE
        self.coarse = coarse = list[int]()
        for begin in range(0, min(len(content) // whole, _MOST_COARSE) * whole, whole):
            chunk = _chained(chunk, content[begin : begin + whole])
            coarse.append(chunk)
        self.tail = self._cut(len(coarse))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompt) and (self.coarse, self.tail) == (other.coarse, other.tail)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{len(self.coarse)} coarse chunks and {len(self.tail)} fine ones"

    def fine(self, place: int) -> list[int]:
        """The fine chunks of the coarse chunk at ``place``; those of the tail after the last one."""
        if place >= len(self.coarse):
            return self.tail
        known = self._fine.get(place)
        if known is None:
            self._fine[place] = known = self._cut(place)
        return known

    @property
    def ids(self) -> Sequence[int] | None:
        """The token ids of the prompt, if it came as such."""
        return None if isinstance(self._content, str) else self._content

    def ends(self) -> Iterator[tuple[int, int, int]]:
        """Yield each known chunk: its end, as ``length`` counts, the chunk, and the tokens that it adds to the others.

        Fine chunks within a coarse one add none.
        """
        size = self._size
        coarse = size * FINE_IN_COARSE
        for place, chunk in enumerate(self.coarse):
            yield (place + 1) * coarse, chunk, COARSE_TOKENS
        for place, chunks in self._fine.items():
            for number, chunk in enumerate(chunks):
                yield place * coarse + (number + 1) * size, chunk, 0
        for number, chunk in enumerate(self.tail):
            yield len(self.coarse) * coarse + (number + 1) * size, chunk, FINE_TOKENS

    def drop_content(self) -> None:
        """Free the text. Fine chunks that nobody has asked for so far are lost."""
        self._content, self.raw = "", b""

    def _cut(self, place: int) -> list[int]:
        size, chunk = self._size, self.coarse[place - 1] if place else self._root
        whole = size * FINE_IN_COARSE
        content = self._content[place * whole : (place + 1) * whole]
        chunks: list[int] = []
        for begin in range(0, len(content) - size + 1, size):
            chunk = _chained(~chunk, content[begin : begin + size])
            chunks.append(chunk)
        return chunks


class PromptExtractor(Extractor):
    """Keeps the prompt of a request for ``prompt_of``, for a strategy that returns it from ``extractors``."""

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        if not 0 < len(request.raw) < 2 * FINE_TOKENS:  # a token id takes two bytes at least, a chunk of text more
            requirements.extra[_KEY] = _Unread(request.body, request.raw)


class _Unread:
    """A prompt that nobody has looked at. Explanations show no more of it."""

    __slots__ = ("body", "raw")

    def __init__(self, body: Body, raw: bytes) -> None:
        self.body = body
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unread) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "not looked at"


def prompt_of(requirements: Requirements) -> Prompt | None:
    """Return the prompt that ``PromptExtractor`` kept; ``None`` for a request with less than one chunk."""
    kept: _Unread | Prompt | None = requirements.extra.get(_KEY)
    if not isinstance(kept, _Unread):
        return kept
    content = text_or_ids(kept.body)
    if len(content) < (4 * FINE_TOKENS if isinstance(content, str) else FINE_TOKENS):
        del requirements.extra[_KEY]
        return None
    requirements.extra[_KEY] = prompt = Prompt(kept.body.model, content, kept.raw)
    return prompt


def drop_prompt(requirements: Requirements) -> None:
    """Free a prompt that nobody is going to look at: requests may live long."""
    requirements.extra.pop(_KEY, None)


def _chained(before: int, piece: str | Sequence[int]) -> int:
    """Hash a piece and all before it. Python's hash of a text differs in each process, that of numbers does not."""
    if isinstance(piece, str):
        return hash((before, crc32(piece.encode("utf-8", "surrogatepass"))))
    return hash((before, tuple(piece)))
