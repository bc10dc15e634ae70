"""Makes one stream of events from those of an engine's data-parallel ranks, each of which has a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginehouse.domain.cache_events import (
    BlockHash,
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    EventsComplete,
    EventsLost,
)


class RankedCache:
    """The cache of an engine with several ranks: it has a block while one of them has it."""

    def __init__(self, ranks: int) -> None:
        self._held: list[set[BlockHash]] = [set() for _ in range(ranks)]
        self._exact = [False] * ranks

    def happened(self, rank: int, events: Sequence[CacheEvent]) -> Iterator[CacheEvent]:
        """What the events of one rank mean for the whole engine."""
        held = self._held[rank]
        for event in events:
            if isinstance(event, BlocksStored):
                held.update(event.hashes)
                yield event
            elif isinstance(event, BlocksRemoved):
                yield self._removed(held, event.hashes)
            elif isinstance(event, CacheCleared):
                yield self._removed(held, [*held])
                self._exact[rank] = True
                if all(self._exact):
                    yield EventsComplete()
            else:
                self._exact[rank] = False
                yield EventsLost()

    def _removed(self, held: set[BlockHash], hashes: Sequence[BlockHash]) -> BlocksRemoved:
        """Of the blocks that one rank has no more, those that no other one has either."""
        held.difference_update(hashes)
        return BlocksRemoved([each for each in hashes if not any(each in others for others in self._held)])
