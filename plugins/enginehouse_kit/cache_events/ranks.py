"""Makes one stream of events from those of an engine's data-parallel ranks, each of which has a cache of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from enginehouse.engine_caches import (
    BlockHash,
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    CacheFollower,
    EventsComplete,
    EventsLost,
    KvEventSettings,
)
from enginehouse_kit.cache_events.follower import RankFollower


class RankedFollower(CacheFollower):
    """Follows all ranks of the engine of ``backend``. Needs a running event loop, and the package ``pyzmq``."""

    def __init__(
        self, backend: str, settings: KvEventSettings, on_events: Callable[[Sequence[CacheEvent]], None]
    ) -> None:
        self._on_events = on_events
        self._cache = RankedCache(settings.ranks)
        self._ranks = [
            RankFollower(backend, settings.of_rank(rank), partial(self._tell, rank)) for rank in range(settings.ranks)
        ]
        for each in self._ranks:
            each.start()

    @property
    def connected(self) -> bool:
        return all(each.connected for each in self._ranks)

    @property
    def exact(self) -> bool:
        return all(each.stream.exact for each in self._ranks)

    @property
    def gaps(self) -> tuple[int, int]:
        streams = [each.stream for each in self._ranks]
        return sum(each.filled for each in streams), sum(each.lost for each in streams)

    def begin_anew(self) -> None:
        self._cache = RankedCache(len(self._ranks))
        for each in self._ranks:
            each.begin_anew()

    def close(self) -> None:
        for each in self._ranks:
            each.close()

    def _tell(self, rank: int, events: Sequence[CacheEvent]) -> None:
        self._on_events(events if len(self._ranks) == 1 else [*self._cache.happened(rank, events)])


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
