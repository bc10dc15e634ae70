"""Drivers: an engine's client, its models and figures, and what it may support besides."""

from __future__ import annotations

from enginehouse.domain.continuation import Continuation as Continuation
from enginehouse.domain.continuation import PartialAnswer as PartialAnswer
from enginehouse.domain.continuation import StreamTraits as StreamTraits
from enginehouse.interfaces.driver_support import DriverSupport as DriverSupport
from enginehouse.interfaces.driver_support import support_of as support_of
from enginehouse.interfaces.drivers import EngineClient as EngineClient
from enginehouse.interfaces.drivers import EngineResponse as EngineResponse
from enginehouse.interfaces.drivers import EventClient as EventClient
from enginehouse.interfaces.drivers import KeepsCache as KeepsCache
from enginehouse.interfaces.drivers import LoadedModel as LoadedModel
from enginehouse.interfaces.drivers import LoadNews as LoadNews
from enginehouse.interfaces.drivers import ServedModel as ServedModel
from enginehouse.interfaces.drivers import SupportsBootstrap as SupportsBootstrap
from enginehouse.interfaces.drivers import SupportsCacheEvents as SupportsCacheEvents
from enginehouse.interfaces.drivers import SupportsContinuation as SupportsContinuation
from enginehouse.interfaces.drivers import SupportsFigures as SupportsFigures
from enginehouse.interfaces.drivers import SupportsHandOver as SupportsHandOver
from enginehouse.interfaces.drivers import SupportsLaunch as SupportsLaunch
from enginehouse.interfaces.drivers import SupportsLoading as SupportsLoading
from enginehouse.interfaces.drivers import SupportsSleep as SupportsSleep
from enginehouse.interfaces.drivers import ThinkingFields as ThinkingFields
from enginehouse.interfaces.engine_words import tells_of_too_little_memory as tells_of_too_little_memory
from enginehouse.interfaces.launch_spec import EngineOptions as EngineOptions
from enginehouse.interfaces.launch_spec import FoundModel as FoundModel
from enginehouse.interfaces.launch_spec import LaunchSpec as LaunchSpec
from enginehouse.interfaces.launch_spec import ModelFacts as ModelFacts
from enginehouse.routing.body.rewrite import add_field as add_field
