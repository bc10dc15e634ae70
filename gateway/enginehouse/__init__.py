"""The public API: every name that a plugin may import.

``enginehouse.testing`` adds the test kit. All other modules are internal and may change at any time.

The imports below are the list of the door. Type checkers carry them out; at run time, ``_door`` reads them, and a name
is imported when it is first used. The reference page has the same sections.
"""

from __future__ import annotations

import typing as _typing

if _typing.TYPE_CHECKING:
    # isort: off
    # --- Interfaces
    from enginehouse.interfaces.extractors import Extractor as Extractor
    from enginehouse.interfaces.filters import Filter as Filter
    from enginehouse.interfaces.scorers import Scorer as Scorer
    from enginehouse.interfaces.strategies import Strategy as Strategy
    from enginehouse.interfaces.strategies import MOST_REMEMBERED as MOST_REMEMBERED
    from enginehouse.domain.explanation import PrefixFacts as PrefixFacts
    from enginehouse.domain.tokens import Tokens as Tokens
    from enginehouse.interfaces.strategies import Placement as Placement
    from enginehouse.interfaces.schedulers import Scheduler as Scheduler
    from enginehouse.interfaces.swappers import Swapper as Swapper
    from enginehouse.interfaces.scalers import Scaler as Scaler
    from enginehouse.interfaces.drivers import Driver as Driver
    from enginehouse.interfaces.launchers import Launcher as Launcher
    from enginehouse.interfaces.discoverers import Discoverer as Discoverer
    from enginehouse.interfaces.services import Service as Service
    from enginehouse.interfaces.continuers import Continuer as Continuer
    from enginehouse.interfaces.interceptors import Interceptor as Interceptor
    from enginehouse.interfaces.authenticators import Authenticator as Authenticator
    from enginehouse.interfaces.guards import Guard as Guard
    from enginehouse.interfaces.limit_stores import LimitStore as LimitStore
    from enginehouse.interfaces.usage_stores import UsageStore as UsageStore
    from enginehouse.interfaces.rescheduling_policies import ReschedulingPolicy as ReschedulingPolicy
    from enginehouse.interfaces.migrators import Migrator as Migrator
    from enginehouse.interfaces.observers import Observer as Observer
    from enginehouse.interfaces.exporters import Exporter as Exporter
    from enginehouse.interfaces.exporters import Sampling as Sampling
    from enginehouse.interfaces.exporters import ExportCounters as ExportCounters
    from enginehouse.interfaces.exporters import TracedRequest as TracedRequest
    from enginehouse.interfaces.exporters import SwapRecord as SwapRecord
    from enginehouse.telemetry.trace_context import UPSTREAM_SPAN as UPSTREAM_SPAN
    from enginehouse.telemetry.trace_context import span_number as span_number
    from enginehouse.interfaces.model_sources import ModelSource as ModelSource
    from enginehouse.interfaces.protocols import Protocol as Protocol
    from enginehouse.interfaces.protocols import ProtocolRequest as ProtocolRequest
    from enginehouse.interfaces.protocols import PageRequest as PageRequest
    from enginehouse.interfaces.protocols import Translation as Translation
    from enginehouse.interfaces.protocols import Forwarded as Forwarded
    from enginehouse.interfaces.protocols import Native as Native
    from enginehouse.interfaces.protocols import TypedAnswer as TypedAnswer
    from enginehouse.interfaces.protocols import ChatPiece as ChatPiece
    from enginehouse.interfaces.protocols import Envelope as Envelope
    from enginehouse.domain.request_record import RequestRecord as RequestRecord
    from enginehouse.domain.request_record import AttemptRecord as AttemptRecord
    from enginehouse.domain.request_record import StreamGap as StreamGap
    from enginehouse.domain.request_record import EngineTimings as EngineTimings

    # --- Registration and configuration
    from enginehouse.hookspecs import Register as Register
    from enginehouse.hookspecs import hookimpl as hookimpl
    from enginehouse.interfaces.routes import guarded as guarded
    from enginehouse.api.page_facts import PageFacts as PageFacts
    from enginehouse.domain.request_record import EndedRequest as EndedRequest
    from enginehouse.telemetry.log_ring import LogLine as LogLine
    from enginehouse.telemetry.log_ring import LogRing as LogRing
    from enginehouse.telemetry.model_totals import ModelTotals as ModelTotals
    from enginehouse.config.scheduling import GroupSettings as GroupSettings
    from enginehouse.config.scheduling import MatrixSettings as MatrixSettings
    from enginehouse.config.rescheduling_settings import ReschedulingSettings as ReschedulingSettings
    from enginehouse.config.rules import is_base_url as is_base_url
    from enginehouse.config.section import Period as Period
    from enginehouse.config.telemetry import TelemetrySettings as TelemetrySettings
    from enginehouse.config.shape import dotted as dotted
    from enginehouse.config.units import format_duration as format_duration
    from enginehouse.config.units import parse_duration as parse_duration
    from enginehouse.config.units import parse_size as parse_size
    from enginehouse.domain.close_names import did_you_mean as did_you_mean

    # --- Requests
    from enginehouse.domain.request import Body as Body
    from enginehouse.domain.request import Headers as Headers
    from enginehouse.domain.inference_request import InferenceRequest as InferenceRequest
    from enginehouse.domain.request import Input as Input
    from enginehouse.domain.request import Message as Message
    from enginehouse.domain.request import Part as Part
    from enginehouse.domain.request import ResponseFormat as ResponseFormat
    from enginehouse.domain.requirements import Requirements as Requirements

    # --- Prompts and prefixes
    from enginehouse_kit.prefixes.chunks import ChunkExtractor as ChunkExtractor
    from enginehouse_kit.prefixes.chunks import chunks_of as chunks_of
    from enginehouse_kit.prefixes.prompt import PromptExtractor as PromptExtractor
    from enginehouse_kit.prefixes.prompt import Prompt as Prompt
    from enginehouse_kit.prefixes.prompt import prompt_of as prompt_of
    from enginehouse.domain.cache_events import BlocksStored as BlocksStored
    from enginehouse.domain.cache_events import BlocksRemoved as BlocksRemoved
    from enginehouse.domain.cache_events import CacheCleared as CacheCleared
    from enginehouse.domain.cache_events import EventsComplete as EventsComplete
    from enginehouse.domain.cache_events import EventsLost as EventsLost
    from enginehouse.domain.cache_events import BlockHash as BlockHash
    from enginehouse.domain.cache_events import CacheEvent as CacheEvent
    from enginehouse.domain.cache_events import PromptTokens as PromptTokens
    from enginehouse.config.kv_events import KvEventSettings as KvEventSettings
    from enginehouse.interfaces.engine_caches import EngineCaches as EngineCaches
    from enginehouse_kit.prefix_index import PrefixIndex as PrefixIndex

    # --- Candidates
    from enginehouse.domain.capabilities import UNKNOWN as UNKNOWN
    from enginehouse.domain.capabilities import Capabilities as Capabilities
    from enginehouse.domain.backend_load import Load as Load
    from enginehouse.domain.replica import Candidate as Candidate
    from enginehouse.domain.replica import Health as Health
    from enginehouse.domain.replica import ReplicaState as ReplicaState
    from enginehouse.domain.replica import AT_REST as AT_REST
    from enginehouse.domain.replica import Role as Role

    # --- Routes
    from enginehouse.domain.route import Reason as Reason
    from enginehouse.domain.route import Route as Route
    from enginehouse.domain.explanation import Verdict as Verdict
    from enginehouse.domain.explanation import RouteDetails as RouteDetails
    from enginehouse.interfaces.scorers import WeightedScorer as WeightedScorer

    # --- Scheduling
    from enginehouse.domain.ticket import Phase as Phase
    from enginehouse.domain.ticket import SwapDone as SwapDone
    from enginehouse.domain.ticket import SwapId as SwapId
    from enginehouse.domain.ticket import Ticket as Ticket
    from enginehouse.interfaces.schedulers import Effects as Effects
    from enginehouse.interfaces.schedulers import SchedulingLimits as SchedulingLimits
    from enginehouse.interfaces.schedulers import Waiting as Waiting
    from enginehouse.interfaces.scalers import ModelLoad as ModelLoad
    from enginehouse.interfaces.scalers import ScaleView as ScaleView
    from enginehouse.interfaces.scalers import WantedReplicas as WantedReplicas
    from enginehouse.interfaces.swappers import HostedReplica as HostedReplica
    from enginehouse.interfaces.swappers import HostFacts as HostFacts
    from enginehouse.interfaces.swappers import SwapPlan as SwapPlan

    # --- The kit for schedulers
    from enginehouse_kit.schedulers.state import SchedulingState as SchedulingState
    from enginehouse_kit.schedulers.state import SwapObstacle as SwapObstacle
    from enginehouse.scheduling.ticket_queue import ReplicaLine as ReplicaLine
    from enginehouse.scheduling.ticket_queue import TicketAge as TicketAge
    from enginehouse.scheduling.ticket_queue import TicketQueue as TicketQueue
    from enginehouse.scheduling.ticket_queue import WaitingTicket as WaitingTicket
    from enginehouse_kit.schedulers.starvation import StarvationClaims as StarvationClaims
    from enginehouse_kit.schedulers.state import SwapInFlight as SwapInFlight
    from enginehouse_kit.schedulers.state import SwapsInFlight as SwapsInFlight
    from enginehouse_kit.schedulers.state import ReplicaUsage as ReplicaUsage
    from enginehouse.scheduling.guarded_swapper import GuardedSwapper as GuardedSwapper

    # --- Engines
    from enginehouse.interfaces.drivers import EngineClient as EngineClient
    from enginehouse.interfaces.drivers import EngineResponse as EngineResponse
    from enginehouse.interfaces.drivers import EventClient as EventClient
    from enginehouse.interfaces.drivers import LoadedModel as LoadedModel
    from enginehouse.interfaces.drivers import LoadNews as LoadNews
    from enginehouse.interfaces.drivers import ServedModel as ServedModel
    from enginehouse.interfaces.drivers import ThinkingFields as ThinkingFields
    from enginehouse.interfaces.drivers import SupportsLaunch as SupportsLaunch
    from enginehouse.interfaces.drivers import SupportsLoading as SupportsLoading
    from enginehouse.interfaces.drivers import SupportsSleep as SupportsSleep
    from enginehouse.interfaces.drivers import SupportsFigures as SupportsFigures
    from enginehouse.interfaces.drivers import SupportsContinuation as SupportsContinuation
    from enginehouse.interfaces.drivers import SupportsCacheEvents as SupportsCacheEvents
    from enginehouse.interfaces.engine_caches import CacheFollower as CacheFollower
    from enginehouse.interfaces.drivers import SupportsHandOver as SupportsHandOver
    from enginehouse.interfaces.drivers import SupportsBootstrap as SupportsBootstrap
    from enginehouse.interfaces.drivers import KeepsCache as KeepsCache
    from enginehouse.interfaces.driver_support import DriverSupport as DriverSupport
    from enginehouse.interfaces.driver_support import support_of as support_of
    from enginehouse.interfaces.launch_spec import EngineOptions as EngineOptions
    from enginehouse.interfaces.launch_spec import FoundModel as FoundModel
    from enginehouse.interfaces.launch_spec import LaunchSpec as LaunchSpec
    from enginehouse.interfaces.launch_spec import ModelFacts as ModelFacts
    from enginehouse_kit.drivers.openai_driver import OpenAICompatibleDriver as OpenAICompatibleDriver
    from enginehouse_kit.drivers.read_json import read_json as read_json
    from enginehouse_kit.drivers.openai_driver import read_model_list as read_model_list
    from enginehouse_kit.drivers.loading_driver import LoadingDriver as LoadingDriver
    from enginehouse_kit.drivers.engine_metrics import MetricSample as MetricSample
    from enginehouse_kit.drivers.engine_metrics import metric_sums as metric_sums
    from enginehouse_kit.drivers.engine_metrics import read_metrics as read_metrics
    from enginehouse_kit.drivers.tokenizing import fill_in_tokens as fill_in_tokens
    from enginehouse_kit.drivers.launch_options import option_arguments as option_arguments
    from enginehouse_kit.drivers.model_folder import find_model_folders as find_model_folders
    from enginehouse_kit.drivers.model_folder import missing_folder as missing_folder
    from enginehouse_kit.drivers.model_folder import model_folder_name as model_folder_name
    from enginehouse_kit.drivers.model_folder import read_model_folder as read_model_folder
    from enginehouse.interfaces.places import EngineNeeds as EngineNeeds
    from enginehouse.interfaces.places import Place as Place
    from enginehouse.interfaces.places import PlacementOptions as PlacementOptions
    from enginehouse.domain.gpu import Gpu as Gpu
    from enginehouse.interfaces.launchers import EngineOutput as EngineOutput
    from enginehouse.interfaces.launchers import EngineProcess as EngineProcess
    from enginehouse.interfaces.launchers import Exit as Exit
    from enginehouse.interfaces.launchers import LaunchLine as LaunchLine
    from enginehouse.interfaces.discoverers import FoundBackend as FoundBackend
    from enginehouse.interfaces.model_sources import PulledModel as PulledModel
    from enginehouse.interfaces.model_sources import PulledFile as PulledFile
    from enginehouse.interfaces.model_sources import PullProgress as PullProgress
    from enginehouse.config.pull import PullSettings as PullSettings
    from enginehouse.interfaces.engine_words import tells_of_too_little_memory as tells_of_too_little_memory

    # --- Services
    from enginehouse.interfaces.model_servers import LoadingBackend as LoadingBackend
    from enginehouse.interfaces.model_servers import ModelServer as ModelServer
    from enginehouse.interfaces.services import Configured as Configured
    from enginehouse.interfaces.services import ServiceGateway as ServiceGateway
    from enginehouse.interfaces.services import GatewayRequests as GatewayRequests
    from enginehouse.interfaces.services import GatewayRequest as GatewayRequest
    from enginehouse.interfaces.services import GatewayCaller as GatewayCaller
    from enginehouse.interfaces.services import Submitted as Submitted
    from enginehouse.interfaces.services import EngineFigures as EngineFigures
    from enginehouse.interfaces.services import GatewayBackends as GatewayBackends
    from enginehouse.interfaces.services import GatewayModels as GatewayModels
    from enginehouse.interfaces.services import GatewayPages as GatewayPages
    from enginehouse.interfaces.services import Measured as Measured
    from enginehouse.aio.clock import Clock as Clock
    from enginehouse.domain.backend_status import BackendStatus as BackendStatus
    from enginehouse.domain.instance import InstanceReport as InstanceReport
    from enginehouse.domain.metric_info import MetricInfo as MetricInfo
    from enginehouse.domain.plugin_id import PluginId as PluginId
    from enginehouse.telemetry.plugin_failures import await_plugin as await_plugin
    from enginehouse.telemetry.plugin_failures import log_plugin_failure as log_plugin_failure
    from enginehouse.telemetry.plugin_failures import plugin_errors as plugin_errors
    from enginehouse.telemetry.plugin_failures import wrong_result as wrong_result
    from enginehouse.config.schema import DiscoverySettings as DiscoverySettings
    from enginehouse.config.model_settings import ModelSettings as ModelSettings
    from enginehouse.config.model_settings import ReplicaRange as ReplicaRange
    from enginehouse.config.model_settings import SizedRange as SizedRange

    # --- Guards
    from enginehouse.interfaces.guards import GuardRequest as GuardRequest
    from enginehouse.interfaces.guards import GuardAnswer as GuardAnswer
    from enginehouse.interfaces.interceptors import InterceptedRequest as InterceptedRequest
    from enginehouse.interfaces.interceptors import Refuse as Refuse
    from enginehouse.interfaces.interceptors import Change as Change
    from enginehouse.interfaces.interceptors import Answer as Answer
    from enginehouse.interfaces.interceptors import Join as Join
    from enginehouse.interfaces.interceptors import AnswerFilter as AnswerFilter
    from enginehouse.interfaces.interceptors import Event as Event
    from enginehouse.interfaces.interceptors import Passed as Passed

    # --- Callers
    from enginehouse.interfaces.authenticators import Caller as Caller
    from enginehouse.interfaces.authenticators import AdmittedCaller as AdmittedCaller
    from enginehouse_kit.credentials import shown_credentials as shown_credentials
    from enginehouse.config.auth import JwtSettings as JwtSettings
    from enginehouse.config.auth import KeySettings as KeySettings
    from enginehouse.config.auth import KeyLimitSettings as KeyLimitSettings
    from enginehouse.config.auth import NAMESPACES as NAMESPACES
    from enginehouse.config.auth import moment as moment
    from enginehouse.config.auth import LimitAmounts as LimitAmounts
    from enginehouse.domain.client_names import kept_name as kept_name

    # --- Limits and usage of callers
    from enginehouse.interfaces.accounting import Accounting as Accounting
    from enginehouse.interfaces.accounting import LimitLeft as LimitLeft
    from enginehouse.interfaces.accounting import CountedGateway as CountedGateway
    from enginehouse.interfaces.accounting import EndedFacts as EndedFacts
    from enginehouse.config.server import ServerSettings as ServerSettings
    from enginehouse.config.usage import PriceSettings as PriceSettings
    from enginehouse.engines.state_file import replace_file as replace_file
    from enginehouse.aio.tasks import BackgroundTasks as BackgroundTasks
    from enginehouse.aio.timeouts import run_within as run_within
    from enginehouse.aio.timeouts import wait_within as wait_within
    from enginehouse.domain.usage import AuditEntry as AuditEntry
    from enginehouse.domain.usage import UsageRow as UsageRow
    from enginehouse.interfaces.limit_stores import Limit as Limit
    from enginehouse.interfaces.limit_stores import LimitPeriod as LimitPeriod
    from enginehouse.interfaces.limit_stores import LimitRule as LimitRule
    from enginehouse.interfaces.limit_stores import TakenLimit as TakenLimit
    from enginehouse_kit.limits.local_limit import LocalLimit as LocalLimit
    from enginehouse.domain.client_names import escaped as escaped
    from enginehouse_kit.limits.leased_limits import LeasedLimitStore as LeasedLimitStore
    from enginehouse_kit.limits.leased_limits import LeaseAsk as LeaseAsk
    from enginehouse_kit.limits.leased_limits import Lease as Lease
    from enginehouse_kit.limits.leased_limits import Leases as Leases
    from enginehouse_kit.limits.lease_book import LeaseBook as LeaseBook

    # --- Continued streams
    from enginehouse.interfaces.kept_streams import AnswerDiffers as AnswerDiffers
    from enginehouse.interfaces.kept_streams import ContinuationWay as ContinuationWay
    from enginehouse.interfaces.kept_streams import KeptStream as KeptStream
    from enginehouse.interfaces.kept_streams import MemoryShare as MemoryShare
    from enginehouse.interfaces.kept_streams import NewShare as NewShare
    from enginehouse.interfaces.kept_streams import PieceMeter as PieceMeter
    from enginehouse.interfaces.kept_streams import Question as Question
    from enginehouse.interfaces.kept_streams import Rest as Rest
    from enginehouse.interfaces.kept_streams import Translator as Translator
    from enginehouse.interfaces.kept_streams import Gathering as Gathering
    from enginehouse.interfaces.moving_streams import StreamMove as StreamMove
    from enginehouse.domain.stream_tokens import StreamTokens as StreamTokens
    from enginehouse.relay.events.added_fields import cutter as cutter
    from enginehouse.relay.events.sse import is_whole as is_whole
    from enginehouse.relay.events.sse import read_events as read_events
    from enginehouse.routing.body.replace_model import replace_model as replace_model
    from enginehouse.domain.continuation import Continuation as Continuation
    from enginehouse.domain.continuation import PartialAnswer as PartialAnswer
    from enginehouse.domain.continuation import StreamTraits as StreamTraits
    from enginehouse.interfaces.hand_over import add_field as add_field
    from enginehouse.interfaces.hand_over import one_token as one_token
    from enginehouse_kit.drivers.continuing import continue_answer as continue_answer
    from enginehouse_kit.drivers.continuing import continue_ids as continue_ids
    from enginehouse_kit.drivers.continuing import continue_text as continue_text

    # --- Rescheduling
    from enginehouse.domain.instance import ClusterView as ClusterView
    from enginehouse.domain.instance import InFlight as InFlight
    from enginehouse.domain.instance import InstanceAddress as InstanceAddress
    from enginehouse.domain.instance import InstanceMetadata as InstanceMetadata
    from enginehouse.domain.instance import InstanceStatus as InstanceStatus
    from enginehouse.domain.instance import InstanceView as InstanceView
    from enginehouse.domain.instance import RequestView as RequestView
    from enginehouse.domain.migration import DroppedPair as DroppedPair
    from enginehouse.domain.migration import Migrated as Migrated
    from enginehouse.domain.migration import Migration as Migration
    from enginehouse.domain.migration import Plan as Plan
    from enginehouse_kit.selection import MIGRATION_ORDERS as MIGRATION_ORDERS
    from enginehouse_kit.selection import MIGRATION_RULES as MIGRATION_RULES
    from enginehouse_kit.selection import migration_budget as migration_budget
    from enginehouse_kit.selection import select_requests as select_requests
    from enginehouse.interfaces.migrators import MigrationMeans as MigrationMeans
    from enginehouse_kit.request_ids import gateway_request_ids as gateway_request_ids

    # --- KV cache projection
    from enginehouse_kit.projection import ProjectionParams as ProjectionParams
    from enginehouse_kit.projection import RequestFigures as RequestFigures
    from enginehouse_kit.projection import RequestProjection as RequestProjection
    from enginehouse_kit.projection import WorstCaseProjection as WorstCaseProjection
    from enginehouse_kit.projection import project as project
    from enginehouse_kit.offload import OFFLOAD_ORDERS as OFFLOAD_ORDERS
    from enginehouse_kit.offload import OffloadCandidate as OffloadCandidate
    from enginehouse_kit.offload import OffloadPlan as OffloadPlan
    from enginehouse_kit.offload import plan_offload as plan_offload

    # --- Commands
    from enginehouse_kit.gateway_client import GatewayClient as GatewayClient
    from enginehouse_kit.gateway_client import gateway_options as gateway_options
    from enginehouse.cli.listen import configured_url as configured_url
    from enginehouse.cli.options import config_option as config_option
    from enginehouse_kit.output import print_json as print_json
    from enginehouse_kit.output import printable as printable
    from enginehouse.cli.output import warn as warn
    from enginehouse_kit.new_file import write_new_file as write_new_file
    from enginehouse.app.reload import Reloaded as Reloaded
    from enginehouse.cli.options import take_over_option as take_over_option
    from enginehouse.cli.serve import serve_document as serve_document
    from enginehouse.engines.pulled_models import PulledModels as PulledModels
    from enginehouse.engines.pulled_models import PulledNote as PulledNote
    from enginehouse.domain.explanation import Explanation as Explanation

    # --- Picking
    from enginehouse.app.picker import Picker as Picker
    from enginehouse.relay.pick import Picked as Picked
    from enginehouse.relay.pick import Pick as Pick
    from enginehouse.relay.pick import PickClient as PickClient

    # --- Simulation
    from enginehouse.config.load_config import LoadedConfig as LoadedConfig
    from enginehouse_kit.virtual_loop import VirtualLoop as VirtualLoop

    # --- Errors
    from enginehouse.domain.errors import BodyTooLarge as BodyTooLarge
    from enginehouse.domain.errors import BudgetExhausted as BudgetExhausted
    from enginehouse.domain.errors import CannotContinue as CannotContinue
    from enginehouse.domain.errors import ConfigError as ConfigError
    from enginehouse.domain.errors import EnginehouseError as EnginehouseError
    from enginehouse.domain.errors import Forbidden as Forbidden
    from enginehouse.domain.errors import GatewayError as GatewayError
    from enginehouse.domain.errors import InvalidRequest as InvalidRequest
    from enginehouse.domain.errors import LoadFailed as LoadFailed
    from enginehouse.domain.errors import ModelNotFound as ModelNotFound
    from enginehouse.domain.errors import NotEnoughMemory as NotEnoughMemory
    from enginehouse.domain.errors import NotFound as NotFound
    from enginehouse.domain.errors import Overloaded as Overloaded
    from enginehouse.domain.errors import PluginError as PluginError
    from enginehouse.domain.errors import PluginFailed as PluginFailed
    from enginehouse.domain.errors import PullFailed as PullFailed
    from enginehouse.domain.errors import QueueFull as QueueFull
    from enginehouse.domain.errors import QueueTimeout as QueueTimeout
    from enginehouse.domain.errors import RateLimited as RateLimited
    from enginehouse.domain.errors import ReplicaLost as ReplicaLost
    from enginehouse.domain.errors import RequestError as RequestError
    from enginehouse.domain.errors import ShuttingDown as ShuttingDown
    from enginehouse.domain.errors import shortened as shortened
    from enginehouse.domain.errors import Unauthorized as Unauthorized
    from enginehouse.domain.errors import UpstreamError as UpstreamError
    from enginehouse.domain.errors import UpstreamTimeout as UpstreamTimeout

    __version__: str

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: the command line starts faster than all of this is imported."""
        if name == "__version__":
            from importlib.metadata import version

            found = version("enginehouse")
        else:
            from enginehouse._door import find

            found = find(__name__, name)
        globals()[name] = found
        return found
