"""The blocks that engines say they have, and the chunks of prompts that end with them."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from enginehouse.engine_caches import PromptTokens
from enginehouse_kit.block_events import BlocksRemoved, BlocksStored, CacheCleared, EventsComplete, EventsLost
from enginehouse_kit.prefixes import Prompt
from enginehouse_routing.shared_index import SharedPrefixIndex

BlockHash = int | bytes
CacheEvent = BlocksStored | BlocksRemoved | CacheCleared | EventsLost | EventsComplete

_MOST_LINKS: Final = 200_000
"""Chunks with their blocks; the oldest are forgotten first. That is 12 million tokens in fine chunks."""
_MOST_EARLY: Final = 64
_MOST_REMOVED: Final = 16_384
"""Removed blocks that are remembered of an engine: the tokens of a prompt come soon after it was read."""


class _Link(NamedTuple):
    """A chunk's last whole block. ``tokens``: that the chunk counts for in the index."""

    block: int
    model: str
    tokens: int


class _EngineBlocks:
    """The blocks of one engine: by its hashes, and how many hashes stand for each.

    Our numbers of blocks come from their tokens and those of all blocks before, so they are the same for all engines
    with blocks of one size. ``exact``: the engine has no others. ``early``: links of prompts whose tokens came before
    the first event, with which the size of blocks is known. ``removed``: the last blocks that it had, the oldest first.
    """

    def __init__(self) -> None:
        self.numbers: dict[BlockHash, int] = {}
        self.present: dict[int, int] = {}
        self.removed: OrderedDict[int, None] = OrderedDict()
        self.size = 0
        self.exact = False
        self.early: list[Callable[[], None]] = []


class CachedBlocks:
    """Keeps ``index`` true to the events of engines, as far as the tokens of prompts are known.

    A chunk is linked to the last block that is whole at its end. From then on, an engine that publishes events has the
    chunk while it has the block. Chunks without a link, and engines without events, stay as the index notes them.

    ``follows``: whether a backend still publishes events.
    """

    def __init__(self, index: SharedPrefixIndex) -> None:
        self.follows: Callable[[str], bool] = lambda backend: True
        self._index = index
        self._engines: dict[str, _EngineBlocks] = {}
        self._links: OrderedDict[int, _Link] = OrderedDict()
        self._chunks: dict[int, list[int]] = {}

    def is_exact(self, backend: str) -> bool:
        """Whether all blocks of ``backend`` are known."""
        engine = self._engines.get(backend)
        return engine is not None and engine.exact

    def happened(self, backend: str, events: Sequence[CacheEvent]) -> None:
        """Take the events of one engine, in their order."""
        engine = self._engine(backend)
        for event in events:
            if isinstance(event, BlocksStored):
                self._store(backend, engine, event)
            elif isinstance(event, BlocksRemoved):
                self._remove(backend, engine, event.hashes)
            elif isinstance(event, CacheCleared):
                self._clear(backend, engine)
                engine.exact = True
            else:
                engine.exact = isinstance(event, EventsComplete)

    def needs(self, prompt: Prompt) -> bool:
        """Whether some chunk of ``prompt`` has no link."""
        return any(chunk not in self._links for _, chunk, _ in prompt.ends())

    def link(self, prompt: Prompt, tokens: PromptTokens, backend: str, model: str, lora: str = "") -> None:
        """Link the chunks of ``prompt``, which ``backend`` serves with ``model``, to their blocks."""
        engine = self._engine(backend)
        if not engine.size:
            if len(engine.early) < _MOST_EARLY:
                engine.early.append(partial(self.link, prompt, tokens, backend, model, lora))
            return
        numbers = list(_numbers(lora, tokens.ids, engine.size))
        ends, length = tokens.ends, max(1, prompt.length)
        for end, chunk, counted in prompt.ends():
            if len(ends) == len(tokens.ids):
                whole = bisect_right(ends, end * ends[-1] // length)
            else:
                whole = end * len(tokens.ids) // length
            if whole >= engine.size and chunk not in self._links:
                self._add(chunk, _Link(numbers[whole // engine.size - 1], model, counted), engine)

    def _engine(self, backend: str) -> _EngineBlocks:
        engine = self._engines.get(backend)
        if engine is None:
            for gone in [each for each in self._engines if not self.follows(each)]:
                del self._engines[gone]
            engine = self._engines[backend] = _EngineBlocks()
        return engine

    def _add(self, chunk: int, link: _Link, reader: _EngineBlocks) -> None:
        """Add a link. The engine that has just read the prompt, ``reader``, may yet tell of it."""
        self._links[chunk] = link
        self._chunks.setdefault(link.block, []).append(chunk)
        for backend, engine in self._engines.items():
            if engine.size == reader.size:
                replica = f"{link.model}@{backend}"
                if link.block in engine.present:
                    self._index.seen(replica, chunk, link.tokens)
                elif engine.exact and (engine is not reader or link.block in engine.removed):
                    self._index.gone(replica, chunk)
        while len(self._links) > _MOST_LINKS:
            oldest, forgotten = self._links.popitem(last=False)
            chunks = self._chunks[forgotten.block]
            chunks.remove(oldest)
            if not chunks:
                del self._chunks[forgotten.block]

    def _store(self, backend: str, engine: _EngineBlocks, event: BlocksStored) -> None:
        if event.parent is None:
            before = hash(event.lora)
        elif (known := engine.numbers.get(event.parent)) is not None:
            before = known
        else:  # its beginning came before we listened
            return
        if not engine.size:
            engine.size = event.block_size
            for link_now in engine.early:
                link_now()
            engine.early.clear()
        for name, number in zip(
            event.hashes, _numbers(event.lora, event.tokens, event.block_size, before), strict=False
        ):
            if name in engine.numbers:
                continue
            engine.numbers[name] = number
            engine.present[number] = engine.present.get(number, 0) + 1
            engine.removed.pop(number, None)
            for chunk in self._chunks.get(number, ()):
                link = self._links[chunk]
                self._index.seen(f"{link.model}@{backend}", chunk, link.tokens)

    def _clear(self, backend: str, engine: _EngineBlocks) -> None:
        """Remove all blocks, tens of thousands of them, of which few end a chunk."""
        had, engine.present, engine.numbers = engine.present, {}, {}
        engine.removed = OrderedDict.fromkeys([*engine.removed, *had][-_MOST_REMOVED:])
        for number in self._chunks.keys() & had.keys():
            self._lose(backend, number)

    def _remove(self, backend: str, engine: _EngineBlocks, hashes: Sequence[BlockHash]) -> None:
        for name in hashes:
            number = engine.numbers.pop(name, None)
            if number is None:
                continue
            engine.present[number] -= 1
            if not engine.present[number]:
                del engine.present[number]
                engine.removed[number] = None
                if len(engine.removed) > _MOST_REMOVED:
                    engine.removed.popitem(last=False)
                self._lose(backend, number)

    def _lose(self, backend: str, number: int) -> None:
        """Note that an engine no longer has a block."""
        for chunk in self._chunks.get(number, ()):
            self._index.gone(f"{self._links[chunk].model}@{backend}", chunk)


def _numbers(lora: str, tokens: Sequence[int], size: int, before: int | None = None) -> Iterator[int]:
    """The number of each whole block of ``tokens``; ``before``: of the block before them."""
    number = hash(lora) if before is None else before
    for begin in range(0, len(tokens) - size + 1, size):
        number = hash((number, *tokens[begin : begin + size]))
        yield number
