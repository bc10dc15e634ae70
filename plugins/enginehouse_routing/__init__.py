"""The bundled routing plugin: extractors, filters, scorers and strategies."""

from __future__ import annotations

from enginehouse import Extractor, Filter, Register, Scorer, Strategy, hookimpl
from enginehouse_routing.cache_aware import CacheAware
from enginehouse_routing.needs import (
    CapabilitiesFilter,
    ContextLengthFilter,
    ErrorShareFilter,
    HealthFilter,
    JsonModeExtractor,
    PausedFilter,
    TokensExtractor,
    ToolsExtractor,
    VisionExtractor,
)
from enginehouse_routing.rules import CanaryFilter, RuleFilter, TierFilter, ZoneFilter
from enginehouse_routing.scorers import LatencyScorer, LoadScorer, PriorityScorer
from enginehouse_routing.session import SessionExtractor
from enginehouse_routing.strategies import (
    LeastPending,
    PowerOfTwo,
    PriorityOnly,
    Random,
    RoundRobin,
    Session,
    Smart,
    Weighted,
)


@hookimpl
def register_extractors(register: Register[Extractor]) -> None:
    """Register the extractors: each sets some of a request's requirements."""
    register("tokens", TokensExtractor)
    register("vision", VisionExtractor)
    register("tools", ToolsExtractor)
    register("json_mode", JsonModeExtractor)
    register("session_id", SessionExtractor)


@hookimpl
def register_filters(register: Register[Filter]) -> None:
    """Register the filters: each drops candidates that cannot serve a request, or had better not."""
    register("health", HealthFilter)
    register("capabilities", CapabilitiesFilter)
    register("context_length", ContextLengthFilter)
    register("paused", PausedFilter)
    register("error_share", ErrorShareFilter)
    register("zone", ZoneFilter)
    register("rule", RuleFilter)
    register("canary", CanaryFilter)
    register("tier", TierFilter)


@hookimpl
def register_scorers(register: Register[Scorer]) -> None:
    """Register the scorers: each rates candidates from 0 to 100."""
    register("priority", PriorityScorer)
    register("load", LoadScorer)
    register("latency", LatencyScorer)


@hookimpl
def register_strategies(register: Register[Strategy]) -> None:
    """Register the strategies: the configured one picks the candidate."""
    register("smart", Smart)
    register("weighted", Weighted)
    register("round_robin", RoundRobin)
    register("priority_only", PriorityOnly)
    register("random", Random)
    register("cache_aware", CacheAware)
    register("least_pending", LeastPending)
    register("p2c", PowerOfTwo)
    register("session", Session)
