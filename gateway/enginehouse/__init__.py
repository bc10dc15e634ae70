"""The public API: every name that a plugin may import.

``enginehouse.testing`` adds the test kit. All other modules are internal and may change at any time.
"""

from __future__ import annotations

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from enginehouse.app.virtual.settings import VirtualSettings
    from enginehouse.app.virtual.virtual_client import VirtualClient
    from enginehouse.app.virtual.virtual_engines import VirtualBackend, VirtualEngines, VirtualProcess
    from enginehouse.app.virtual.virtual_gateway import VirtualGateway
    from enginehouse.app.virtual.virtual_loop import VirtualLoop
    from enginehouse.config.rescheduling import ReschedulingSettings
    from enginehouse.config.scheduling import GroupSettings, MatrixSettings
    from enginehouse.config.units import parse_duration
    from enginehouse.domain.capabilities import UNKNOWN, Capabilities
    from enginehouse.domain.close_names import did_you_mean
    from enginehouse.domain.continuation import Continuation, PartialAnswer, StreamTraits
    from enginehouse.domain.errors import (
        AliasCycle,
        BodyTooLarge,
        Cancelled,
        CannotContinue,
        CapabilityMismatch,
        ConfigError,
        EnginehouseError,
        FallbackExhausted,
        Forbidden,
        InvalidRequest,
        LoadFailed,
        ModelNotFound,
        NoHealthyBackend,
        NotEnoughMemory,
        NotFound,
        Overloaded,
        PluginError,
        PluginFailed,
        QueueFull,
        QueueTimeout,
        RateLimited,
        ReplicaLost,
        RequestError,
        ShuttingDown,
        Unauthorized,
        UpstreamError,
        UpstreamTimeout,
    )
    from enginehouse.domain.instance import (
        ClusterView,
        InFlight,
        InstanceAddress,
        InstanceMetadata,
        InstanceStatus,
        InstanceView,
        RequestView,
    )
    from enginehouse.domain.load import Load
    from enginehouse.domain.migration import DroppedPair, Migrated, Migration, Plan
    from enginehouse.domain.replica import Candidate, Health, ReplicaState, Role, replica_name
    from enginehouse.domain.request import Body, Headers, InferenceRequest, Input, Message, Part, ResponseFormat
    from enginehouse.domain.request_record import AttemptRecord, RequestRecord
    from enginehouse.domain.requirements import Requirements
    from enginehouse.domain.route import ExplainedCandidate, Explanation, Reason, Route, Verdict
    from enginehouse.domain.ticket import Phase, SwapDone, SwapId, Ticket
    from enginehouse.hookspecs import Register, hookimpl
    from enginehouse.interfaces.continuing import add_field, continue_answer, continue_ids, continue_text
    from enginehouse.interfaces.discoverers import Discoverer, FoundBackend
    from enginehouse.interfaces.drivers import (
        Driver,
        EngineClient,
        EngineResponse,
        LoadedModel,
        ServedModel,
        SupportsBootstrap,
        SupportsContinuation,
        SupportsFigures,
        SupportsHandOver,
        SupportsLaunch,
        SupportsLoading,
        SupportsSleep,
    )
    from enginehouse.interfaces.engine_metrics import MetricSample, metric_sums, read_metrics
    from enginehouse.interfaces.extractors import Extractor
    from enginehouse.interfaces.filters import Filter
    from enginehouse.interfaces.launch_options import option_arguments
    from enginehouse.interfaces.launch_spec import EngineOptions, FoundModel, LaunchSpec, ModelFacts
    from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Launcher, LaunchLine
    from enginehouse.interfaces.loading_driver import LoadingDriver
    from enginehouse.interfaces.migrators import MigrationMeans, Migrator
    from enginehouse.interfaces.model_folder import find_model_folders, missing_folder, read_model_folder
    from enginehouse.interfaces.observers import Observer
    from enginehouse.interfaces.openai_driver import OpenAICompatibleDriver, read_json, read_model_list
    from enginehouse.interfaces.rescheduling import ReschedulingPolicy
    from enginehouse.interfaces.routes import guarded
    from enginehouse.interfaces.schedulers import Effects, Scheduler, SchedulingLimits, Waiting
    from enginehouse.interfaces.scorers import Scorer, WeightedScorer
    from enginehouse.interfaces.strategies import Strategy
    from enginehouse.interfaces.swappers import HostedReplica, HostFacts, Swapper, SwapPlan
    from enginehouse.interfaces.tokenizing import fill_in_tokens
    from enginehouse.rescheduling.offload import OFFLOAD_ORDERS, OffloadCandidate, OffloadPlan, plan_offload
    from enginehouse.rescheduling.projection import (
        ProjectionParams,
        RequestFigures,
        RequestProjection,
        WorstCaseProjection,
        project,
    )
    from enginehouse.rescheduling.request_ids import gateway_request_ids
    from enginehouse.rescheduling.selection import MIGRATION_ORDERS, MIGRATION_RULES, migration_budget, select_requests
    from enginehouse.routing.prefixes.chunks import ChunkExtractor, chunks_of
    from enginehouse.routing.prefixes.prefix_index import PrefixIndex
    from enginehouse.scheduling.kit.starvation import StarvationClaims
    from enginehouse.scheduling.kit.state import SchedulingState, SwapObstacle
    from enginehouse.scheduling.kit.swaps import SwapInFlight, SwapsInFlight
    from enginehouse.scheduling.kit.ticket_queue import ReplicaLine, TicketAge, TicketQueue, WaitingTicket
    from enginehouse.scheduling.kit.usage import ReplicaUsage

    __version__: str

__all__ = [
    "MIGRATION_ORDERS",
    "MIGRATION_RULES",
    "OFFLOAD_ORDERS",
    "UNKNOWN",
    "AliasCycle",
    "AttemptRecord",
    "Body",
    "BodyTooLarge",
    "Cancelled",
    "Candidate",
    "CannotContinue",
    "Capabilities",
    "CapabilityMismatch",
    "ChunkExtractor",
    "ClusterView",
    "ConfigError",
    "Continuation",
    "Discoverer",
    "Driver",
    "DroppedPair",
    "Effects",
    "EngineClient",
    "EngineOptions",
    "EngineOutput",
    "EngineProcess",
    "EngineResponse",
    "EnginehouseError",
    "ExplainedCandidate",
    "Explanation",
    "Extractor",
    "FallbackExhausted",
    "Filter",
    "Forbidden",
    "FoundBackend",
    "FoundModel",
    "GroupSettings",
    "Headers",
    "Health",
    "HostFacts",
    "HostedReplica",
    "InFlight",
    "InferenceRequest",
    "Input",
    "InstanceAddress",
    "InstanceMetadata",
    "InstanceStatus",
    "InstanceView",
    "InvalidRequest",
    "LaunchLine",
    "LaunchSpec",
    "Launcher",
    "Load",
    "LoadFailed",
    "LoadedModel",
    "LoadingDriver",
    "MatrixSettings",
    "Message",
    "MetricSample",
    "Migrated",
    "Migration",
    "MigrationMeans",
    "Migrator",
    "ModelFacts",
    "ModelNotFound",
    "NoHealthyBackend",
    "NotEnoughMemory",
    "NotFound",
    "Observer",
    "OffloadCandidate",
    "OffloadPlan",
    "OpenAICompatibleDriver",
    "Overloaded",
    "Part",
    "PartialAnswer",
    "Phase",
    "Plan",
    "PluginError",
    "PluginFailed",
    "PrefixIndex",
    "ProjectionParams",
    "QueueFull",
    "QueueTimeout",
    "RateLimited",
    "Reason",
    "Register",
    "ReplicaLine",
    "ReplicaLost",
    "ReplicaState",
    "ReplicaUsage",
    "RequestError",
    "RequestFigures",
    "RequestProjection",
    "RequestRecord",
    "RequestView",
    "Requirements",
    "ReschedulingPolicy",
    "ReschedulingSettings",
    "ResponseFormat",
    "Role",
    "Route",
    "Scheduler",
    "SchedulingLimits",
    "SchedulingState",
    "Scorer",
    "ServedModel",
    "ShuttingDown",
    "StarvationClaims",
    "Strategy",
    "StreamTraits",
    "SupportsBootstrap",
    "SupportsContinuation",
    "SupportsFigures",
    "SupportsHandOver",
    "SupportsLaunch",
    "SupportsLoading",
    "SupportsSleep",
    "SwapDone",
    "SwapId",
    "SwapInFlight",
    "SwapObstacle",
    "SwapPlan",
    "Swapper",
    "SwapsInFlight",
    "Ticket",
    "TicketAge",
    "TicketQueue",
    "Unauthorized",
    "UpstreamError",
    "UpstreamTimeout",
    "Verdict",
    "VirtualBackend",
    "VirtualClient",
    "VirtualEngines",
    "VirtualGateway",
    "VirtualLoop",
    "VirtualProcess",
    "VirtualSettings",
    "Waiting",
    "WaitingTicket",
    "WeightedScorer",
    "WorstCaseProjection",
    "add_field",
    "chunks_of",
    "continue_answer",
    "continue_ids",
    "continue_text",
    "did_you_mean",
    "fill_in_tokens",
    "find_model_folders",
    "gateway_request_ids",
    "guarded",
    "hookimpl",
    "metric_sums",
    "migration_budget",
    "missing_folder",
    "option_arguments",
    "parse_duration",
    "plan_offload",
    "project",
    "read_json",
    "read_metrics",
    "read_model_folder",
    "read_model_list",
    "replica_name",
    "select_requests",
]

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: the command line starts faster than all of this is imported."""
        if name == "__version__":
            from importlib.metadata import version

            found = version("enginehouse")
        elif name in __all__:
            from enginehouse._door import MODULES

            found = getattr(_import_module(MODULES[name]), name)
        else:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = found
        return found
