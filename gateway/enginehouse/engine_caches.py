"""The prefix caches of engines, as their events tell."""

from __future__ import annotations

from enginehouse.config.schema import KvEventSettings
from enginehouse.domain.cache_events import (
    BlockHash,
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    EventsComplete,
    EventsLost,
    PromptTokens,
)
from enginehouse.interfaces.engine_caches import CacheFollower, EngineCaches

__all__ = [
    "BlockHash",
    "BlocksRemoved",
    "BlocksStored",
    "CacheCleared",
    "CacheEvent",
    "CacheFollower",
    "EngineCaches",
    "EventsComplete",
    "EventsLost",
    "KvEventSettings",
    "PromptTokens",
]
