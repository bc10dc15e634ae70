"""The whole configuration, as ``msgspec`` structs. Unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from enginehouse.domain.replica import Role

Duration = Annotated[float, Meta(ge=0, extra={"unit": "duration"})]
"""Seconds in here, text with a unit in the file (``"30s"``)."""
ByteSize = Annotated[int, Meta(ge=0, extra={"unit": "size"})]
"""Bytes in here, text with a unit in the file (``"24GiB"``)."""
Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Weight = Annotated[int, Meta(ge=0, le=100)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every table of the file has in common."""


class Server(Section):
    """Where the gateway listens and how it stops."""

    host: str = "127.0.0.1"
    port: Annotated[Port, Meta(description="0 picks a free port")] = 8080
    workers: Annotated[Positive, Meta(description="serving processes")] = 1
    max_body: Annotated[ByteSize, Meta(description="largest request body taken")] = 32 * 1024**2
    drain_timeout: Annotated[Duration, Meta(description="how long live requests may go on when the gateway stops")] = 30
    cors: Annotated[list[str], Meta(description='origins that browsers may call from; `["*"]` for any')] = []


class Key(Section):
    """One client key. A limit of 0 is no limit."""

    name: Annotated[str, Meta(description="how the key is called in logs and figures")]
    key: Annotated[str, Meta(description='the secret itself, `"env:NAME"` or `"file:PATH"`')]
    models: Annotated[list[str], Meta(description="models it may use; `*` and `?` match as in a shell")] = field(
        default_factory=lambda: ["*"]
    )
    admin: Annotated[bool, Meta(description="may use `/api`")] = False
    requests_per_minute: Count = 0
    tokens_per_minute: Annotated[Count, Meta(description="estimated prompt tokens")] = 0
    max_concurrent: Count = 0
    priority: Annotated[int, Meta(description="added to the priority of its requests in the queue")] = 0


class Auth(Section):
    """Who may use the gateway. Without keys, everybody who can reach it."""

    keys: list[Key] = []


class Telemetry(Section):
    """What the gateway tells of itself."""

    traces: Literal["off", "otlp", "console"] = "off"
    endpoint: Annotated[str, Meta(description="OTLP/HTTP traces endpoint")] = "http://127.0.0.1:4318/v1/traces"
    sample_ratio: Annotated[Share, Meta(description="share of requests that are traced")] = 0.01
    metrics: Annotated[bool, Meta(description="serve `/metrics`")] = True
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Weights(Section):
    """What counts how much in the `smart` strategy; the three must sum to 100."""

    priority: Weight = 50
    load: Weight = 30
    latency: Weight = 20


class ScorerRef(Section):
    """One scorer of the `weighted` strategy."""

    type: Annotated[str, Meta(description="a registered scorer")]
    name: Annotated[str, Meta(description="instance name; the type if left out")] = ""
    weight: Annotated[Positive, Meta(description="relative to the other scorers")] = 1
    parameters: dict[str, Any] = {}


class Routing(Section):
    """Which replica serves a request."""

    strategy: Annotated[
        str, Meta(description="`smart`, `round_robin`, `priority_only`, `random`, `weighted` or a plugin's")
    ] = "smart"
    max_retries: Annotated[Count, Meta(description="other replicas tried before the first byte")] = 2
    weights: Weights = Weights()
    filters: Annotated[list[str] | None, Meta(description="filters to run, in order; all installed if left out")] = None
    scorers: Annotated[list[ScorerRef], Meta(description="scorers of `weighted` and of plugins' strategies")] = []
    aliases: Annotated[dict[str, str], Meta(description="another name for a model; single-level")] = {}
    fallbacks: Annotated[dict[str, list[str]], Meta(description="models to try, in order, when one cannot serve")] = {}


class Checks(Section):
    """How the gateway learns whether a backend works, besides from live requests."""

    interval: Annotated[Duration, Meta(description="between two probes of one backend")] = 5
    timeout: Annotated[Duration, Meta(description="of one probe")] = 5
    failures: Annotated[Positive, Meta(description="in a row that make a backend unhealthy")] = 3
    successes: Annotated[Positive, Meta(description="in a row that make it healthy again")] = 2


class Timeouts(Section):
    """How long an engine may take; 0 is for ever."""

    connect: Annotated[Duration, Meta(description="until a connection stands")] = 5
    first_byte: Annotated[Duration, Meta(description="until the answer begins")] = 600
    stall: Annotated[Duration, Meta(description="between two pieces of an answer")] = 120
    total: Annotated[Duration, Meta(description="for the whole answer")] = 0


class Host(Section):
    """A place where memory lives."""

    memory: Annotated[ByteSize | None, Meta(description="budget of the `memory` swapper; all there is if left out")] = (
        None
    )
    node: Annotated[str, Meta(description="label for failure domains")] = ""
    unit: Annotated[str, Meta(description="label for failure domains")] = ""
    max_loads: Annotated[Positive, Meta(description="models loading at once")] = 1
    launcher: Annotated[str, Meta(description="where engine processes live")] = "local"


class ModelCard(Section):
    """What a backend's copy of a model can do; what is left out is unknown, and unknown is allowed."""

    context_length: Annotated[Positive, Meta(description="tokens")] | None = None
    vision: bool | None = None
    tools: bool | None = None
    json_mode: bool | None = None
    embeddings: bool | None = None


class Backend(Section):
    """An engine server that is already running."""

    url: Annotated[str, Meta(description="where it listens, without `/v1`")]
    driver: Annotated[str, Meta(description="`llamacpp`, `vllm`, `sglang`, `openai`, `sim` or a plugin's")] = "openai"
    priority: Annotated[Count, Meta(description="lower is better")] = 0
    role: Role = Role.NEUTRAL
    host: str = "local"
    models: Annotated[
        list[str] | dict[str, ModelCard] | None, Meta(description="what it serves; asked from the engine if left out")
    ] = None
    api_key: Annotated[str, Meta(description='sent to the engine; `"env:NAME"` or `"file:PATH"`')] = ""
    pass_authorization: Annotated[bool, Meta(description="send the client's own key on to the engine")] = False
    verify_tls: Annotated[bool, Meta(description="check the engine's certificate")] = True
    timeouts: Annotated[Timeouts | None, Meta(description="instead of the common ones")] = None


class Model(ModelCard):
    """A model that is launched on demand; without `driver`, `path` or `command` only what it can do."""

    driver: str = ""
    path: Annotated[str, Meta(description="the model's file or folder")] = ""
    command: Annotated[str, Meta(description="launch line instead of the driver's; `${port}` `${path}` `${model}`")] = (
        ""
    )
    args: Annotated[list[str], Meta(description="added to the launch line")] = []
    env: dict[str, str] = {}
    host: str = "local"
    replicas: Positive = 1
    priority: Annotated[Count, Meta(description="lower is better")] = 0
    role: Role = Role.NEUTRAL
    ttl: Annotated[Duration, Meta(description="unload after this long idle; 0 never")] = 0
    memory: Annotated[ByteSize | None, Meta(description="what it takes; learned if left out")] = None
    stop_command: Annotated[str, Meta(description="instead of SIGTERM")] = ""
    start_timeout: Duration = 120
    stop_timeout: Duration = 10
    preload: Annotated[bool, Meta(description="load at start")] = False
    pin: Annotated[bool, Meta(description="never evict")] = False
    concurrency: Annotated[
        Count, Meta(description="most requests at once; 0 is what the engine says, else no limit")
    ] = 0
    timeouts: Annotated[Timeouts | None, Meta(description="instead of the common ones")] = None

    @property
    def launches(self) -> bool:
        """Whether there is an engine to launch for it."""
        return bool(self.driver or self.path or self.command)


class Group(Section):
    """Models of the `group` swapper that share a place."""

    members: list[str]
    swap: Annotated[bool, Meta(description="one member at a time")] = True
    exclusive: Annotated[bool, Meta(description="loading a member stops other groups")] = True
    persistent: Annotated[bool, Meta(description="other groups never stop it")] = False


class Matrix(Section):
    """What may run together, for the `matrix` swapper."""

    vars: Annotated[dict[str, str], Meta(description="short names of models")] = {}
    costs: Annotated[dict[str, Count], Meta(description="what stopping a model costs")] = {}
    sets: Annotated[dict[str, str], Meta(description="allowed combinations, best first: `(g | q) & v`")] = {}


class Scheduling(Section):
    """When a request runs and what is loaded for it."""

    scheduler: str = "fifo"
    swapper: Annotated[str, Meta(description="`group`, `matrix`, `memory` or a plugin's")] = "group"
    queue_timeout: Duration = 600
    max_queue: Count = 1000
    min_residency: Annotated[Duration, Meta(description="a loaded model is not evicted sooner")] = 0
    max_wait: Annotated[Duration, Meta(description="then a waiting request stops newer traffic to what blocks it")] = 60
    priorities: Annotated[dict[str, int], Meta(description="of models; higher first")] = {}
    groups: dict[str, Group] = {}
    matrix: Matrix = Matrix()


class Rescheduling(Section):
    """Which live requests move, and how."""

    enabled: bool = False
    mode: Literal["colocated", "standalone"] = "colocated"
    interval: Duration = 0.5
    policies: list[str] = field(
        default_factory=lambda: ["decode_load", "prefill_failover", "decode_failover", "neutral_failover"]
    )
    migrators: list[str] = field(default_factory=lambda: ["llumlet", "replay"])
    decode_load_metric: str = "kv_cache_usage_ratio_projected"
    neutral_load_metric: str = "kv_cache_usage_ratio_projected"
    prefill_load_metric: str = "kv_cache_usage_ratio_projected"
    decode_load_threshold: float = 1.0
    neutral_load_threshold: float = 1.0
    load_balance_threshold: Annotated[float, Meta(description="least difference of load worth a move")] = 0.0
    load_balance_scope: Literal["cluster", "unit"] = "cluster"
    failover_domain: Literal["instance", "node", "instance-unit", "node-unit"] = "instance"
    instance_staleness: Duration = 60
    req_select_rule: Literal["NUM_REQ", "TOKEN", "RATIO"] = "TOKEN"
    req_select_order: Literal["LCR", "FCR", "LR", "SR", "FCW", "FCWSR"] = "SR"
    req_select_value: float = 1024
    adaptive_pd: bool = False
    ttft_slo: Duration = 6
    tpot_slo: Duration = 0.05
    ttft_slo_dispatch_threshold: float = 0.85
    tpot_slo_dispatch_threshold: float = 0.85
    tpot_migrate_out_ceil_threshold: float = 0.95
    tpot_migrate_out_floor_threshold: float = 0.60
    ttft_profile: str = ""
    tpot_profile: str = ""
    migrate_timeout: Duration = 5
    cool_down: Annotated[Duration, Meta(description="rest of an instance that just sent or received; 0 is none")] = 2


class Discovery(Section):
    """One place to look for backends."""

    type: Annotated[str, Meta(description="a registered discoverer")]
    parameters: dict[str, Any] = {}


class Plugins(Section):
    """Which plugins are loaded, and their parameters."""

    on_error: Annotated[Literal["fail", "skip"], Meta(description="what a plugin that cannot be loaded does")] = "fail"
    disabled: Annotated[list[str], Meta(description="entry points not loaded")] = []
    enabled: Annotated[list[str] | None, Meta(description="the only entry points loaded besides the bundled")] = None
    parameters: Annotated[dict[str, dict[str, Any]], Meta(description="`[plugins.NAME]`: parameters by type")] = field(
        default_factory=dict
    )


class Config(Section):
    """``enginehouse.toml``."""

    server: Server = Server()
    auth: Auth = Auth()
    telemetry: Telemetry = Telemetry()
    routing: Routing = Routing()
    checks: Checks = Checks()
    timeouts: Timeouts = Timeouts()
    hosts: dict[str, Host] = {}
    backends: dict[str, Backend] = {}
    models: dict[str, Model] = {}
    scheduling: Scheduling = Scheduling()
    rescheduling: Rescheduling = Rescheduling()
    discovery: dict[str, Discovery] = {}
    plugins: Plugins = Plugins()
