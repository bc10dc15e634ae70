"""The prefix caches of engines, as their events tell."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.schema import KvEventSettings
from enginehouse.interfaces.engine_caches import CacheFollower, EngineCaches, PromptTokens

__all__ = ["CacheFollower", "EngineCaches", "KvEventSettings", "PromptTokens"]

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
