"""Drivers: an engine's client, its models and figures, and what it may support besides."""

from __future__ import annotations

from enginehouse.domain.continuation import Continuation, PartialAnswer, StreamTraits
from enginehouse.interfaces.driver_support import DriverSupport, support_of
from enginehouse.interfaces.drivers import (
    EngineClient,
    EngineResponse,
    EventClient,
    KeepsCache,
    LoadedModel,
    LoadNews,
    ServedModel,
    SupportsBootstrap,
    SupportsCacheEvents,
    SupportsContinuation,
    SupportsFigures,
    SupportsHandOver,
    SupportsLaunch,
    SupportsLoading,
    SupportsSleep,
    ThinkingFields,
)
from enginehouse.interfaces.engine_words import tells_of_too_little_memory
from enginehouse.interfaces.launch_spec import EngineOptions, FoundModel, LaunchSpec, ModelFacts
from enginehouse.relay.events.added_fields import add_field, one_token

__all__ = [
    "Continuation",
    "DriverSupport",
    "EngineClient",
    "EngineOptions",
    "EngineResponse",
    "EventClient",
    "FoundModel",
    "KeepsCache",
    "LaunchSpec",
    "LoadNews",
    "LoadedModel",
    "ModelFacts",
    "PartialAnswer",
    "ServedModel",
    "StreamTraits",
    "SupportsBootstrap",
    "SupportsCacheEvents",
    "SupportsContinuation",
    "SupportsFigures",
    "SupportsHandOver",
    "SupportsLaunch",
    "SupportsLoading",
    "SupportsSleep",
    "ThinkingFields",
    "add_field",
    "one_token",
    "support_of",
    "tells_of_too_little_memory",
]
