"""The prefix caches of engines, as their events tell."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.config.schema import KvEventSettings as KvEventSettings
from enginehouse.interfaces.engine_caches import CacheFollower as CacheFollower
from enginehouse.interfaces.engine_caches import EngineCaches as EngineCaches
from enginehouse.interfaces.engine_caches import PromptTokens as PromptTokens

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
