"""A prompt in two sizes of chunks, for the shared index: coarse ones first, fine ones where prompts part. Compiled.

The texts of earlier prompts are kept, with which new ones are compared: most prompts begin as another one did.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias
from zlib import crc32

from enginehouse import Body, Extractor, InferenceRequest, Requirements
from enginehouse_kit.prefixes.chunks import ids_of, sections_of

_KEY: Final = "routing.prompt"
_FINE_TOKENS: Final = 64
_FINE_IN_COARSE: Final = 16
_ENDS: Final = 64
"""Characters at both ends by which two texts of one length are told apart."""
_MOST_COARSE: Final = 2048
"""Two million tokens. More is not looked at: hashing it would hold up the event loop."""
_LONGEST: Final = 16
"""Pieces of a run. A longer one would be compared hardly faster, and copied longer when it grows."""
_MOST_PIECES: Final = 4096
"""Pieces in all: 16 MiB of ASCII if each has 4096 characters, or up to 64 MiB."""
_Content: TypeAlias = str | Sequence[int]
"""A text, or token ids."""


def number_of(piece: str) -> int:
    """Return a checksum: Python's hash of a text differs in each process."""
    return crc32(piece.encode("utf-8", "surrogatepass"))


class _Run:
    """Consecutive pieces of a text, and the chunk that each of them ends."""

    __slots__ = ("chunks", "text")

    def __init__(self) -> None:
        self.text = ""
        self.chunks: list[int] = []


class KnownTexts:
    """The pieces that came after each chunk last, in runs. ``size``: the characters of a piece.

    To compare two pieces takes a tenth of the time of a checksum, and still less in a run. A run grows with its prompt,
    and ends where prompts part.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._runs: OrderedDict[int, _Run] = OrderedDict()
        self._kept = 0

    def chunks(self, before: int, text: str, number: int) -> list[int]:
        """Return the chunks of the first ``number`` pieces of ``text``, whose root is ``before``."""
        chunks = list[int]()
        growing: _Run | None = None
        while (place := len(chunks)) < number:
            run = self._runs.get(before)
            if run is None:
                if growing is None or len(growing.chunks) >= _LONGEST:
                    growing = self._runs[before] = _Run()
                chunks += self._grow(growing, before, text, place, min(number, place + _LONGEST - len(growing.chunks)))
            else:
                same = self._same(run, text, place)
                growing = run if same == len(run.chunks) else None
                if growing is None and place + same < number:  # they part here
                    self._cut(run, same)
                    same = same or len(self._grow(run, before, text, place, place + 1))
                chunks += run.chunks[:same]
            before = chunks[-1]
        while self._kept > _MOST_PIECES:
            self._kept -= len(self._runs.popitem(last=False)[1].chunks)
        return chunks

    def _same(self, run: _Run, text: str, place: int) -> int:
        """How many pieces of ``run`` stand in ``text``, too, from ``place`` on."""
        size, begin, same = self._size, place * self._size, 0
        if text.startswith(run.text, begin):
            return len(run.chunks)
        while text.startswith(run.text[same : same + size], begin + same):
            same += size
        return same // size

    def _cut(self, run: _Run, length: int) -> None:
        """Keep so many pieces of ``run``."""
        self._kept -= len(run.chunks) - length
        run.text = run.text[: length * self._size]
        del run.chunks[length:]

    def _grow(self, run: _Run, before: int, text: str, place: int, end: int) -> list[int]:
        """Add the pieces of ``text`` from ``place`` to ``end`` to ``run``, and return their chunks."""
        size, added = self._size, list[int]()
        for begin in range(place * size, end * size, size):
            before = hash((before, number_of(text[begin : begin + size])))
            added.append(before)
        run.text += text[place * size : end * size]
        run.chunks += added
        self._kept += len(added)
        return added


_known: Final = KnownTexts(4 * _FINE_TOKENS * _FINE_IN_COARSE)


class Section:
    """A text of a prompt, such as a message.

    ``mark`` tells it from others, in this process and not quite surely; ``chain`` tells it and all before it.
    """

    __slots__ = ("chain", "length", "mark", "name")

    def __init__(self, name: str, text: str, before: int) -> None:
        self.name = name
        self.length = length = len(text)
        self.mark = mark = hash((length, text[:_ENDS], text[-_ENDS:]))
        self.chain = hash((before, mark))


class Prompt:
    """The chunks of one prompt. Two prompts have a chunk in common if they are equal up to its end.

    ``coarse``: the whole coarse chunks, as numbers, the same in every process. ``tail``: the whole fine chunks
    after the last coarse one. ``first``: the first fine chunk; 0 without one. ``length``: of the whole prompt, in
    characters or token ids. ``raw``: the body of its request. ``sections``: its texts.
    """

    FINE_TOKENS: Final = _FINE_TOKENS
    """Tokens in a fine chunk; blocks of engines have 16 to 64. A token stands for four characters of text."""
    COARSE_TOKENS: Final = _FINE_TOKENS * _FINE_IN_COARSE

    __slots__ = ("_content", "_fine", "_root", "_size", "coarse", "first", "length", "raw", "sections", "tail")

    def __init__(
        self, model: str, content: str | Sequence[int], raw: bytes = b"", sections: Sequence[Section] = ()
    ) -> None:
        self.length = len(content)
        self.sections = sections
        self.raw = raw
        self._size = size = 4 * _FINE_TOKENS if isinstance(content, str) else _FINE_TOKENS
        self._content: _Content = content
        self._fine: dict[int, list[int]] = {}
        self._root = hash((0, number_of(model)))
        whole = size * _FINE_IN_COARSE
        number = min(self.length // whole, _MOST_COARSE)
        if isinstance(content, str):
            self.coarse = _known.chunks(self._root, content, number)
        else:
            self.coarse = _chain(self._root, 0, content, range(0, number * whole, whole))
        self.tail = self._cut(len(self.coarse))
        first = _chain(self._root, -1, content, range(0, size, size)) if self.coarse else self.tail
        self.first = first[0] if first else 0

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
        coarse = size * _FINE_IN_COARSE
        for place, chunk in enumerate(self.coarse):
            yield (place + 1) * coarse, chunk, self.COARSE_TOKENS
        for place, chunks in self._fine.items():
            for number, chunk in enumerate(chunks):
                yield place * coarse + (number + 1) * size, chunk, 0
        for number, chunk in enumerate(self.tail):
            yield len(self.coarse) * coarse + (number + 1) * size, chunk, _FINE_TOKENS

    def drop_content(self) -> None:
        """Free the text. Fine chunks that nobody has asked for so far are lost."""
        self._content, self.raw, self.sections = "", b"", ()

    def _cut(self, place: int) -> list[int]:
        size, before = self._size, self.coarse[place - 1] if place else self._root
        begin = place * size * _FINE_IN_COARSE
        end = min(begin + size * _FINE_IN_COARSE, len(self._content) - size + 1)
        return _chain(before, -1, self._content, range(begin, end, size))


class PromptExtractor(Extractor):
    """Keeps the prompt of a request for ``prompt_of``, for a strategy that returns it from ``extractors``."""

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        if not 0 < len(request.raw) < 2 * _FINE_TOKENS:  # a token id takes two bytes at least, a chunk of text more
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
    sections: list[Section] = []
    content: str | Sequence[int] | None = ids_of(kept.body)
    if content is None:
        texts = sections_of(kept.body)
        content = "".join([text for _, text in texts])
        chain = 0
        for name, text in texts:
            section = Section(name, text, chain)
            sections.append(section)
            chain = section.chain
    if len(content) < (4 * _FINE_TOKENS if isinstance(content, str) else _FINE_TOKENS):
        del requirements.extra[_KEY]
        return None
    requirements.extra[_KEY] = prompt = Prompt(kept.body.model, content, kept.raw, sections)
    return prompt


def _chain(before: int, mask: int, content: _Content, begins: range) -> list[int]:
    """A number for each piece of ``content``, and all before it. The pieces are as long as the steps of ``begins``.

    ``mask``: that of fine chunks keeps them apart from coarse ones.
    """
    return [before := hash((before ^ mask, number)) for number in _numbers(content, begins)]


def _numbers(content: _Content, begins: range) -> Sequence[int | tuple[object, ...]]:
    """What each piece counts as. Python's hash of a text differs in each process, that of numbers does not."""
    begin, size, length = begins.start, begins.step, len(begins) * begins.step
    if not isinstance(content, str):
        return [tuple(content[begin : begin + size]) for begin in begins]
    if not content.isascii():
        return [number_of(content[begin : begin + size]) for begin in begins]
    data = content[begin : begin + length].encode()  # pieces of bytes cost half as much
    return [crc32(data[begin : begin + size]) for begin in range(0, length, size)]
