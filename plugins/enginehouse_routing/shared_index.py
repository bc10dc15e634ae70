"""The beginnings of prompts that engines probably have in their prefix caches: one index for all engines."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Final

from enginehouse_kit.prefixes import Prompt
from enginehouse_routing.structs import PrefixNews

_MOST_KEPT: Final = (8 << 20) // 10
"""Chunks: each takes ten bytes."""
_MOST_NEWS: Final = 1000
_MOST_FOUND: Final = 64
_NOTHING: Final[Mapping[str, int]] = {}
_MOST_ENGINES: Final = 4096
"""With more, those that were sent nothing for the longest time are probably gone."""
_FEW_LEFT: Final = 32 * 1024
_MOST_GONE: Final = 65_536
_VALUES: Final = bytes.maketrans(b"01", b"\0\1")


class _EngineChunks:
    """The chunks that one engine was sent, least recently used first, each with its tokens."""

    __slots__ = ("bit", "chunks", "tokens")

    def __init__(self, bit: int) -> None:
        self.bit: Final = bit
        self.chunks: OrderedDict[int, int] = OrderedDict()
        self.tokens = 0

    def packed(self, most: int) -> tuple[bytes, bytes]:
        """The ``most`` chunks that were used last, and the tokens of each."""
        skipped = max(0, len(self.chunks) - most)
        chunks, tokens = array("q", self.chunks), array("H", self.chunks.values())
        return chunks[skipped:].tobytes(), tokens[skipped:].tobytes()


def _unpacked(chunks: bytes, tokens: bytes) -> list[tuple[int, int]]:
    """The chunks with their tokens, as ``packed`` has packed them. Raises ``ValueError``."""
    numbers, sizes = array("q"), array("H")
    numbers.frombytes(chunks)
    sizes.frombytes(tokens)
    if len(numbers) != len(sizes):
        raise ValueError("the tokens of some chunks are missing")
    return list(zip(numbers, sizes, strict=True))


class SharedPrefixIndex:
    """Remembers the chunks that were sent to each engine last. It may be wrong, because it does not ask engines.

    Each chunk has the engines that it was sent to as the bits of one number. A look-up walks the chunks of a prompt
    once, however many engines there are: the engines that have all chunks so far only become fewer. Fine chunks are
    kept only where prompts were seen to part, and at the ends of prompts.
    """

    def __init__(self) -> None:
        self._engines: dict[int, int] = {}
        self._sent: dict[str, _EngineChunks] = {}
        self._names: list[str] = []
        """The engine of each bit; empty for one that was forgotten."""
        self.crowded: dict[str, int] = {}
        """The tokens that are left to an engine until it drops something, for those to which few are left."""
        self._gone: OrderedDict[int, str] = OrderedDict()
        """Chunks that some engine had and none has, the last ones, and why."""
        self._news: deque[PrefixNews] | None = None
        self._found: dict[tuple[tuple[int, int], ...], Mapping[str, int]] = {}
        """What was found last, by engines and tokens: many prompts begin alike."""

    def dropped(self, prompt: Prompt, place: int) -> tuple[int, str]:
        """How many tokens after the first ``place`` ones of ``prompt`` an engine had, and why none has them any more.

        That is ``evicted``, ``restarted``, or empty for 0 tokens.
        """
        if not self._gone:
            return 0, ""
        tokens, why, begin = 0, "", place // Prompt.COARSE_TOKENS
        rest = prompt.coarse[begin:] if not place % Prompt.COARSE_TOKENS else []
        fine = prompt.tail if begin + len(rest) >= len(prompt.coarse) else []
        skipped = (place % Prompt.COARSE_TOKENS) // Prompt.FINE_TOKENS
        for chunks, size in ((rest, Prompt.COARSE_TOKENS), (fine[skipped:], Prompt.FINE_TOKENS)):
            for chunk in chunks:
                gone = self._gone.get(chunk)
                if gone is None:
                    return tokens, why
                tokens, why = tokens + size, why or gone
        return tokens, why

    def leading(self, prompt: Prompt) -> Mapping[str, int]:
        """Return how many tokens at the beginning of ``prompt`` each engine has; engines that have none are left out.

        It asks for the fine chunks where engines part. What it returns never changes.
        """
        groups = self._groups(prompt)
        if not groups:
            return _NOTHING
        found = self._found.get(key := tuple(groups))
        if found is None:
            if len(self._found) == _MOST_FOUND:
                self._found.clear()
            found = self._found[key] = self._named(groups)
        return found

    def _groups(self, prompt: Prompt) -> list[tuple[int, int]]:
        """The engines that have the same part of ``prompt``, as the bits of a number, and its tokens."""
        groups: list[tuple[int, int]] = []
        engines = self._engines
        alive = engines.get(prompt.first, 0)
        if prompt.coarse:
            alive |= engines.get(prompt.coarse[0], 0)
        if not alive:
            return groups
        for place, chunk in enumerate(prompt.coarse):
            still = engines.get(chunk, 0) & alive
            if still != alive:
                self._end(groups, prompt, place, alive & ~still)
                alive = still
                if not alive:
                    return groups
        self._end(groups, prompt, len(prompt.coarse), alive)
        return groups

    def _named(self, groups: list[tuple[int, int]]) -> Mapping[str, int]:
        """The tokens of each engine."""
        found: dict[str, int] = {}
        for engines, tokens in groups:
            bits = reversed(bin(engines)[2:].encode().translate(_VALUES))  # "0b1101" becomes 1, 0, 1, 1
            found.update(dict.fromkeys(compress(self._names, bits), tokens))
        return found

    def note(self, engine: str, prompt: Prompt, most: int) -> None:
        """Remember that ``prompt`` was sent there; keep at most ``most`` tokens in all.

        Forgets the last chunks of a prompt first, as engines do, because they are useless without its beginning.
        """
        parting = self._parting(prompt)
        fine = prompt.fine(parting) if parting < len(prompt.coarse) else []
        if self._news is not None:
            self._news.append(PrefixNews(engine, most, prompt.coarse, fine, prompt.tail))
        self._note(engine, prompt.coarse, fine, prompt.tail, most)

    def news(self) -> list[PrefixNews]:
        """Return what was noted since the last call, the newest 1000 prompts, for ``hear`` of another index.

        The first call returns nothing: without one, nothing is kept for it.
        """
        news, self._news = self._news or (), deque(maxlen=_MOST_NEWS)
        return list(news)

    def hear(self, news: Iterable[PrefixNews]) -> None:
        """Note what another index did."""
        for each in news:
            self._note(each.engine, each.coarse, each.fine, each.tail, each.most)

    def _note(self, engine: str, coarse: list[int], fine: list[int], tail: list[int], most: int) -> None:
        self._sent[engine] = sent = self._sent.pop(engine, None) or self._new(engine)
        if len(self._sent) > _MOST_ENGINES:
            self.forget(next(iter(self._sent)))
        self._add(sent, tail, Prompt.FINE_TOKENS)
        self._add(sent, fine, 0)
        self._add(sent, coarse, Prompt.COARSE_TOKENS)
        while sent.tokens > most and len(sent.chunks) > 1:
            self._drop(sent, *sent.chunks.popitem(last=False))
        if sent.tokens + _FEW_LEFT > most:
            self.crowded[engine] = max(0, most - sent.tokens)
        else:
            self.crowded.pop(engine, None)

    def seen(self, engine: str, chunk: int, tokens: int) -> None:
        """Note that ``engine`` says that it has ``chunk``, which adds so many tokens to those before."""
        sent = self._sent.get(engine)
        if sent is None:
            sent = self._sent[engine] = self._new(engine)
        self._add(sent, [chunk], tokens)

    def gone(self, engine: str, chunk: int) -> None:
        """Note that ``engine`` says that it no longer has ``chunk``."""
        sent = self._sent.get(engine)
        if sent is not None and (tokens := sent.chunks.pop(chunk, None)) is not None:
            self._drop(sent, chunk, tokens)

    def keep(self, engine: str, most: int) -> None:
        """Drop all but the ``most`` tokens that an engine was sent last: it has ended, and gets only these back."""
        sent = self._sent.get(engine)
        if not most:
            self.forget(engine)
        elif sent is not None:
            while sent.tokens > most:
                self._drop(sent, *sent.chunks.popitem(last=False), "restarted")
            self.crowded.pop(engine, None)

    def forget(self, engine: str) -> None:
        """Drop an engine that has ended: when it is launched again, its cache is empty."""
        sent = self._sent.pop(engine, None)
        if sent is not None:
            for chunk, tokens in sent.chunks.items():
                self._drop(sent, chunk, tokens, "restarted")
            self._names[sent.bit.bit_length() - 1] = ""
            self.crowded.pop(engine, None)
            self._found.clear()

    def remembered(self, most_kept: int = _MOST_KEPT) -> dict[str, tuple[bytes, bytes]]:
        """Return the chunks of each engine and their tokens, for ``recall``: the least recently used are left out.

        At most 8 MiB in all.
        """
        most = most_kept // max(1, len(self._sent))
        return {engine: sent.packed(most) for engine, sent in self._sent.items() if sent.chunks}

    def recall(self, remembered: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Remember what another index did of the engines that this one does not know. Raises ``ValueError``."""
        found = {engine: _unpacked(*packed) for engine, packed in remembered.items() if engine not in self._sent}
        for engine, chunks in found.items():
            self._sent[engine] = sent = self._new(engine)
            for chunk, tokens in chunks:
                self._add(sent, [chunk], tokens)

    def _new(self, engine: str) -> _EngineChunks:
        if "" in self._names:
            place = self._names.index("")
            self._names[place] = engine
        else:
            place = len(self._names)
            self._names.append(engine)
        return _EngineChunks(1 << place)

    def _parting(self, prompt: Prompt) -> int:
        """The place after the last coarse chunk that some engine has."""
        engines, place = self._engines, len(prompt.coarse)
        while place and prompt.coarse[place - 1] not in engines:
            place -= 1
        return place

    def _end(self, groups: list[tuple[int, int]], prompt: Prompt, place: int, leaving: int) -> None:
        """Note what the engines ``leaving`` have: all coarse chunks before ``place``, and fine ones after it."""
        engines, tokens, fine = self._engines, place * Prompt.COARSE_TOKENS, Prompt.FINE_TOKENS
        for chunk in prompt.fine(place):
            still = engines.get(chunk, 0) & leaving
            if still != leaving:
                if tokens:
                    groups.append((leaving & ~still, tokens))
                leaving = still
                if not leaving:
                    return
            tokens += fine
        if tokens:
            groups.append((leaving, tokens))

    def _add(self, sent: _EngineChunks, chunks: list[int], tokens: int) -> None:
        engines, bit, known, gone = self._engines, sent.bit, sent.chunks, self._gone
        move = known.move_to_end
        for chunk in reversed(chunks):
            if chunk in known:
                move(chunk)
            else:
                known[chunk] = tokens
                sent.tokens += tokens
                engines[chunk] = engines.get(chunk, 0) | bit
                if gone:
                    gone.pop(chunk, None)

    def _drop(self, sent: _EngineChunks, chunk: int, tokens: int, why: str = "evicted") -> None:
        sent.tokens -= tokens
        left = self._engines[chunk] & ~sent.bit
        if left:
            self._engines[chunk] = left
        else:
            del self._engines[chunk]
            self._gone[chunk] = why
            if len(self._gone) > _MOST_GONE:
                self._gone.popitem(last=False)
