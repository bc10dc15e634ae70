"""Names that ``enginehouse`` had when it offered all of them, and the modules where they are now."""

from __future__ import annotations

from importlib import import_module

_NAMES = {
    "enginehouse.backends": """
        BackendStatus DiscoverySettings FoundBackend LoadingBackend ModelServer ModelSettings
        ReplicaRange SizedRange
    """,
    "enginehouse.callers": """
        Accounting AdmittedCaller AuditEntry Caller CountedGateway JwtSettings KeyLimitSettings
        KeySettings LimitAmounts LimitLeft LimitPeriod LimitRule NAMESPACES PriceSettings ServerSettings
        TakenLimit UsageRow moment
    """,
    "enginehouse.commands": "config_option configured_url warn",
    "enginehouse.continuers": "read_events",
    "enginehouse.drivers": """
        Continuation DriverSupport EngineClient EngineOptions EngineResponse EventClient FoundModel KeepsCache
        LaunchSpec LoadNews LoadedModel ModelFacts PartialAnswer ServedModel StreamTraits SupportsBootstrap
        SupportsCacheEvents SupportsContinuation SupportsFigures SupportsHandOver SupportsLaunch SupportsLoading
        SupportsSleep ThinkingFields add_field support_of tells_of_too_little_memory
    """,
    "enginehouse.engine_caches": "CacheFollower EngineCaches KvEventSettings PromptTokens",
    "enginehouse.errors": """
        BodyTooLarge BudgetExhausted CannotContinue Forbidden LoadFailed ModelNotFound NotEnoughMemory NotFound
        Overloaded PluginFailed PullFailed QueueFull QueueTimeout RateLimited ReplicaLost ShuttingDown
        Unauthorized UpstreamError UpstreamTimeout shortened
    """,
    "enginehouse.launchers": "EngineNeeds EngineOutput EngineProcess Exit Gpu LaunchLine Place PlacementOptions",
    "enginehouse.model_sources": "PullProgress PullSettings PulledFile PulledModel PulledModels PulledNote",
    "enginehouse.pages": "EndedRequest LogLine LogRing ModelTotals PageFacts guarded",
    "enginehouse.picking": "Pick PickClient Picked Picker",
    "enginehouse.protocols": "PageRequest",
    "enginehouse.records": """
        EngineTimings Sampling StreamGap SwapRecord TelemetrySettings TracedRequest UPSTREAM_SPAN
        span_number
    """,
    "enginehouse.requests": "Input Message Part ResponseFormat Tokens escaped kept_name",
    "enginehouse.rescheduling": """
        InstanceAddress InstanceMetadata InstanceReport InstanceStatus RequestView ReschedulingSettings
    """,
    "enginehouse.routing_facts": """
        AT_REST Explanation Load MOST_REMEMBERED Placement PrefixFacts Reason RouteDetails UNKNOWN Verdict
        WeightedScorer
    """,
    "enginehouse.runtime": """
        BackgroundTasks Clock PluginId await_plugin plugin_errors replace_file run_within wait_within
        wrong_result
    """,
    "enginehouse.services": """
        Configured EngineFigures GatewayBackends GatewayCaller GatewayModels GatewayPages GatewayRequest
        GatewayRequests Measured MetricInfo ServiceGateway Submitted
    """,
    "enginehouse.settings": "GroupSettings MatrixSettings did_you_mean dotted is_base_url",
    "enginehouse.tickets": """
        Effects HostFacts HostedReplica Phase ReplicaLine SchedulingLimits SwapDone SwapId SwapPlan Ticket
        TicketAge TicketQueue Waiting WaitingTicket
    """,
    "enginehouse_kit.added_fields": "cutter one_token",
    "enginehouse_kit.block_events": """
        BlockHash BlocksRemoved BlocksStored CacheCleared CacheEvent EventsComplete EventsLost
    """,
    "enginehouse_kit.credentials": "shown_credentials",
    "enginehouse_kit.drivers": """
        LoadingDriver MetricSample OpenAICompatibleDriver continue_answer continue_ids continue_text
        fill_in_tokens find_model_folders metric_sums missing_folder model_folder_name option_arguments
        read_json read_metrics read_model_folder read_model_list
    """,
    "enginehouse_kit.gateway_client": "GatewayClient gateway_options",
    "enginehouse_kit.discoverers": "Discoverer",
    "enginehouse_kit.guards": "Guard GuardAnswer GuardRequest",
    "enginehouse_kit.interceptors": """
        Answer AnswerFilter Change ChosenInterceptor Event EventKind InterceptedRequest Interceptor InterceptorAdapter
        Join Passed Refuse Whole
    """,
    "enginehouse_kit.limit_stores": "Limit LimitStore",
    "enginehouse_kit.protocols": """
        ChatPiece Envelope Forwarded Native Protocol ProtocolRequest Translation TypedAnswer
    """,
    "enginehouse_kit.rescheduling": """
        ClusterView DroppedPair InFlight InstanceView Migrated Migration MigrationMeans Migrator Plan
        ReschedulingPolicy
    """,
    "enginehouse_kit.scalers": "ModelLoad ScaleView Scaler WantedReplicas",
    "enginehouse_kit.usage_stores": "UsageStore",
    "enginehouse_kit.limits": "Lease LeaseAsk LeaseBook LeasedLimitStore Leases LocalLimit",
    "enginehouse_kit.new_file": "write_new_file",
    "enginehouse_kit.offload": "OFFLOAD_ORDERS OffloadCandidate OffloadPlan plan_offload",
    "enginehouse_kit.output": "print_json printable",
    "enginehouse_kit.prefix_index": "PrefixIndex",
    "enginehouse_kit.prefixes": "ChunkExtractor Prompt PromptExtractor chunks_of prompt_of",
    "enginehouse_kit.projection": "ProjectionParams RequestFigures RequestProjection WorstCaseProjection project",
    "enginehouse_kit.request_ids": "gateway_request_ids",
    "enginehouse_kit.schedulers": """
        ReplicaUsage SchedulingState StarvationClaims SwapInFlight SwapObstacle SwapsInFlight
    """,
    "enginehouse_kit.selection": "MIGRATION_ORDERS MIGRATION_RULES migration_budget select_requests",
    "enginehouse_kit.virtual_loop": "VirtualLoop",
    "enginehouse_offline.checked_config": "CheckedConfig check_config",
    "enginehouse_offline.served_files": "InstalledEngines",
    "enginehouse_offline.offline_gateway": "OfflineGateway",
    "enginehouse_offline.render": "json_schema",
    "enginehouse_sim.virtual": """
        VirtualBackend VirtualClient VirtualEngines VirtualGateway VirtualProcess VirtualSettings
    """,
}
_INTERFACES = (
    *("enginehouse_kit.added_fields", "enginehouse_kit.block_events", "enginehouse_kit.discoverers"),
    "enginehouse_kit.guards",
    *("enginehouse_kit.interceptors", "enginehouse_kit.limit_stores", "enginehouse_kit.protocols"),
    *("enginehouse_kit.rescheduling", "enginehouse_kit.scalers", "enginehouse_kit.usage_stores"),
)
"""Modules of interfaces that plugins implement, and of what passes between them, which the core once
offered."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_INTERNAL = ("GuardedSwapper", "LoadedConfig", "Reloaded", "serve_document", "take_over_option")
"""Names that only bundled plugins used."""


def find(name: str) -> object:
    """What the name means that ``enginehouse``, or a module of it, had: plugins that import it there keep working.

    Raises ``ImportError`` for a name that the core does not have any more, whose message ``from enginehouse import
    NAME`` shows as it is, and ``AttributeError`` for one that never was.
    """
    if name in _INTERNAL:
        raise ImportError(f"'{name}' is internal now: plugins have no use for it")
    if name not in _MODULES:
        raise AttributeError(f"module 'enginehouse' has no attribute '{name}'")
    module = _MODULES[name]
    if not (module.startswith("enginehouse.") or module in _INTERFACES):  # the core imports no plugin for itself
        raise ImportError(f"import '{name}' from '{module}'")
    found: object = getattr(import_module(module), name)
    return found
