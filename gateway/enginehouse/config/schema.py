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
SecretText = Annotated[str, Meta(extra={"secret": True})]
"""Read as a ``Secret``: ``"env:NAME"`` and ``"file:PATH"`` are followed, and it is never printed."""
Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Weight = Annotated[int, Meta(ge=0, le=100)]
ProgressForm = Literal["off", "comments", "reasoning"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every table of the file has in common."""


class Server(Section, frozen=True):
    """Where the gateway listens and how it stops."""

    host: Annotated[str, Meta(description="address to listen on")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="0 picks a free port")] = 8080
    workers: Annotated[Positive, Meta(description="serving processes")] = 1
    max_body: Annotated[ByteSize, Meta(description="largest request body taken")] = 32 * 1024**2
    drain_timeout: Annotated[Duration, Meta(description="how long live requests may go on when the gateway stops")] = 30
    watch: Annotated[bool, Meta(description="load this file again when it was changed")] = False
    cors: Annotated[list[str], Meta(description='origins that browsers may call from; `["*"]` for any')] = []


class Key(Section, frozen=True):
    """One client key. A limit of 0 is no limit."""

    name: Annotated[str, Meta(description="how the key is called in logs and figures")]
    key: Annotated[SecretText, Meta(description='the secret itself, `"env:NAME"` or `"file:PATH"`')]
    models: Annotated[list[str], Meta(description="models it may use; `*` and `?` match as in a shell")] = field(
        default_factory=lambda: ["*"]
    )
    admin: Annotated[bool, Meta(description="may use `/api`")] = False
    requests_per_minute: Annotated[Count, Meta(description="most requests in a minute")] = 0
    tokens_per_minute: Annotated[Count, Meta(description="estimated prompt tokens")] = 0
    max_concurrent: Annotated[Count, Meta(description="most requests at once")] = 0
    priority: Annotated[int, Meta(description="added to the priority of its requests in the queue")] = 0


class Auth(Section, frozen=True):
    """Who may use the gateway. Without keys, everybody who can reach it."""

    keys: Annotated[list[Key], Meta(description="one table for each client")] = []


class Telemetry(Section, frozen=True):
    """What the gateway tells of itself."""

    traces: Annotated[Literal["off", "otlp", "console"], Meta(description="where spans go")] = "off"
    endpoint: Annotated[str, Meta(description="OTLP/HTTP traces endpoint")] = "http://127.0.0.1:4318/v1/traces"
    sample_ratio: Annotated[Share, Meta(description="share of requests that are traced")] = 0.01
    metrics: Annotated[bool, Meta(description="serve `/metrics`")] = True
    log_format: Annotated[Literal["text", "json"], Meta(description="lines for people or for machines")] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severity that is logged")
    ] = "info"


class Weights(Section, frozen=True):
    """What counts how much in the `smart` strategy; the three must sum to 100."""

    priority: Annotated[Weight, Meta(description="of the backend's `priority`")] = 50
    load: Annotated[Weight, Meta(description="of the requests it has in work")] = 30
    latency: Annotated[Weight, Meta(description="of its average latency")] = 20


class ScorerRef(Section, frozen=True):
    """One scorer of the `weighted` strategy."""

    type: Annotated[str, Meta(description="a registered scorer")]
    name: Annotated[str, Meta(description="instance name; the type if left out")] = ""
    weight: Annotated[Positive, Meta(description="relative to the other scorers")] = 1
    parameters: Annotated[dict[str, Any], Meta(description="what this scorer takes")] = {}


class Routing(Section, frozen=True):
    """Which replica serves a request."""

    strategy: Annotated[
        str, Meta(description="`smart`, `round_robin`, `priority_only`, `random`, `weighted` or a plugin's")
    ] = "smart"
    max_retries: Annotated[Count, Meta(description="how often a request is sent once more before the first byte")] = 2
    weights: Weights = Weights()
    filters: Annotated[list[str] | None, Meta(description="filters to run, in order; all installed if left out")] = None
    scorers: Annotated[list[ScorerRef], Meta(description="scorers of `weighted` and of plugins' strategies")] = []
    aliases: Annotated[dict[str, str], Meta(description="another name for a model; single-level")] = {}
    fallbacks: Annotated[dict[str, list[str]], Meta(description="models to try, in order, when one cannot serve")] = {}


class Checks(Section, frozen=True):
    """How the gateway learns whether a backend works, besides from live requests."""

    interval: Annotated[Duration, Meta(description="between two probes of one backend")] = 5
    timeout: Annotated[Duration, Meta(description="of one probe")] = 5
    failures: Annotated[Positive, Meta(description="in a row that make a backend unhealthy")] = 3
    successes: Annotated[Positive, Meta(description="in a row that make it healthy again")] = 2


class Timeouts(Section, frozen=True):
    """How long an engine may take; 0 is for ever."""

    connect: Annotated[Duration, Meta(description="until a connection stands")] = 5
    first_byte: Annotated[Duration, Meta(description="until the answer begins")] = 600
    stall: Annotated[Duration, Meta(description="between two pieces of an answer")] = 120
    total: Annotated[Duration, Meta(description="for the whole answer")] = 0


class Host(Section, frozen=True):
    """A place where memory lives."""

    memory: Annotated[ByteSize | None, Meta(description="budget of the `memory` swapper; all there is if left out")] = (
        None
    )
    node: Annotated[str, Meta(description="label for failure domains")] = ""
    unit: Annotated[str, Meta(description="label for failure domains")] = ""
    max_loads: Annotated[Positive, Meta(description="models loading at once")] = 1
    launcher: Annotated[str, Meta(description="where engine processes live")] = "local"


class ModelCard(Section, frozen=True):
    """What a backend's copy of a model can do; what is left out is unknown, and unknown is allowed."""

    context_length: Annotated[Positive, Meta(description="tokens")] | None = None
    vision: Annotated[bool | None, Meta(description="takes images")] = None
    tools: Annotated[bool | None, Meta(description="takes tools")] = None
    json_mode: Annotated[bool | None, Meta(description="answers in JSON on request")] = None
    embeddings: Annotated[bool | None, Meta(description="makes embeddings")] = None


class Backend(Section, frozen=True):
    """An engine server that is already running."""

    url: Annotated[str, Meta(description="where it listens, without `/v1`")]
    driver: Annotated[str, Meta(description="`llamacpp`, `vllm`, `sglang`, `openai`, `sim` or a plugin's")] = "openai"
    priority: Annotated[Count, Meta(description="lower is better")] = 0
    role: Annotated[Role, Meta(description="what it does where prefill and decode are split")] = Role.NEUTRAL
    host: Annotated[str, Meta(description="where it runs")] = "local"
    models: Annotated[
        list[str] | dict[str, ModelCard] | None, Meta(description="what it serves; asked from the engine if left out")
    ] = None
    api_key: Annotated[SecretText, Meta(description='sent to the engine; `"env:NAME"` or `"file:PATH"`')] = ""
    pass_authorization: Annotated[bool, Meta(description="send the client's own key on to the engine")] = False
    verify_tls: Annotated[bool, Meta(description="check the engine's certificate")] = True
    timeouts: Annotated[Timeouts | None, Meta(description="instead of the common ones")] = None


class BodyFilters(Section, frozen=True):
    """What is changed in the bodies of a model's requests. `a.b` is the field `b` of the object `a`; `model` stays."""

    strip: Annotated[list[str], Meta(description="fields to take out")] = []
    set: Annotated[dict[str, Any], Meta(description="fields to put in, after that, whatever the client sent")] = {}


class Model(ModelCard, frozen=True):
    """A model that is launched on demand; without `driver`, `path` or `command` only what is true of it elsewhere."""

    driver: Annotated[str, Meta(description="`llamacpp`, `vllm`, `sglang`, `sim` or a plugin's")] = ""
    path: Annotated[str, Meta(description="the model's file or folder")] = ""
    command: Annotated[str, Meta(description="launch line instead of the driver's; `${port}` `${path}` `${model}`")] = (
        ""
    )
    args: Annotated[list[str], Meta(description="added to the launch line")] = []
    env: Annotated[dict[str, str], Meta(description="added to the engine's environment")] = {}
    host: Annotated[str, Meta(description="where it runs")] = "local"
    replicas: Annotated[Positive, Meta(description="engines to launch")] = 1
    priority: Annotated[Count, Meta(description="lower is better")] = 0
    role: Annotated[Role, Meta(description="what it does where prefill and decode are split")] = Role.NEUTRAL
    ttl: Annotated[Duration, Meta(description="unload after this long idle, also if pinned; 0 never")] = 0
    idle: Annotated[
        Literal["stop", "sleep"],
        Meta(description="what `ttl` does: `sleep` needs an engine that can, else it is stopped"),
    ] = "stop"
    memory: Annotated[ByteSize | None, Meta(description="what it takes; learned if left out")] = None
    stop_command: Annotated[str, Meta(description="instead of SIGTERM")] = ""
    health_path: Annotated[
        str, Meta(description="page that answers 200 once it is ready, else the driver's; `none`: any answer will do")
    ] = ""
    start_timeout: Annotated[Duration, Meta(description="until it is ready")] = 120
    stop_timeout: Annotated[Duration, Meta(description="until it is killed")] = 10
    preload: Annotated[bool, Meta(description="load at start")] = False
    pin: Annotated[bool, Meta(description="never evict")] = False
    concurrency: Annotated[
        Count, Meta(description="most requests at once; 0 is what the engine says, else no limit")
    ] = 0
    progress: Annotated[
        ProgressForm | None, Meta(description="instead of `scheduling.progress`, for requests of this model")
    ] = None
    timeouts: Annotated[Timeouts | None, Meta(description="instead of the common ones")] = None
    filters: BodyFilters = BodyFilters()

    @property
    def launches(self) -> bool:
        """Whether there is an engine to launch for it."""
        return bool(self.driver or self.path or self.command)


class Group(Section, frozen=True):
    """Models of the `group` swapper that share a place."""

    members: Annotated[list[str], Meta(description="models")]
    swap: Annotated[bool, Meta(description="one member at a time")] = True
    exclusive: Annotated[bool, Meta(description="loading a member stops other groups")] = True
    persistent: Annotated[bool, Meta(description="other groups never stop it")] = False


class Matrix(Section, frozen=True):
    """What may run together, for the `matrix` swapper."""

    vars: Annotated[dict[str, str], Meta(description="short names of models")] = {}
    costs: Annotated[dict[str, Positive], Meta(description="what stopping a model costs; 1 if left out")] = {}
    sets: Annotated[dict[str, str], Meta(description="allowed combinations, best first: `(g | q) & v`")] = {}


class Scheduling(Section, frozen=True):
    """When a request runs and what is loaded for it."""

    scheduler: Annotated[str, Meta(description="`fifo` or a plugin's")] = "fifo"
    swapper: Annotated[str, Meta(description="`group`, `matrix`, `memory` or a plugin's")] = "group"
    queue_timeout: Annotated[Duration, Meta(description="longest wait for a model")] = 600
    max_queue: Annotated[Count, Meta(description="most requests waiting on a host")] = 1000
    min_residency: Annotated[Duration, Meta(description="a loaded model is not evicted sooner")] = 0
    max_wait: Annotated[Duration, Meta(description="then a waiting request stops newer traffic to what blocks it")] = 60
    progress: Annotated[ProgressForm, Meta(description="how clients of streams are told that they wait, if at all")] = (
        "off"
    )
    progress_patience: Annotated[
        Duration, Meta(description="before they are told, so that an early error keeps its status")
    ] = 5
    priorities: Annotated[dict[str, int], Meta(description="of models; higher first")] = {}
    groups: Annotated[
        dict[str, Group], Meta(description="for the `group` swapper; without any, all models of a host are one")
    ] = {}
    matrix: Annotated[Matrix, Meta(description="for the `matrix` swapper")] = Matrix()


class Rescheduling(Section, frozen=True):
    """Which live requests move, and how."""

    enabled: Annotated[bool, Meta(description="move live requests")] = False
    mode: Annotated[Literal["colocated", "standalone"], Meta(description="in the gateway, or a process of its own")] = (
        "colocated"
    )
    interval: Annotated[Duration, Meta(description="between two rounds")] = 0.5
    policies: Annotated[list[str], Meta(description="what decides, in order")] = field(
        default_factory=lambda: ["decode_load", "prefill_failover", "decode_failover", "neutral_failover"]
    )
    migrators: Annotated[list[str], Meta(description="what moves a request; the first that can")] = field(
        default_factory=lambda: ["llumlet", "replay"]
    )
    decode_load_metric: Annotated[str, Meta(description="figure that is the load of a decode instance")] = (
        "kv_cache_usage_ratio_projected"
    )
    neutral_load_metric: Annotated[str, Meta(description="figure that is the load of a neutral instance")] = (
        "kv_cache_usage_ratio_projected"
    )
    prefill_load_metric: Annotated[str, Meta(description="figure that is the load of a prefill instance")] = (
        "kv_cache_usage_ratio_projected"
    )
    decode_load_threshold: Annotated[
        float, Meta(description="load over which a decode instance gives requests away")
    ] = 1.0
    neutral_load_threshold: Annotated[
        float, Meta(description="load over which a neutral instance gives requests away")
    ] = 1.0
    load_balance_threshold: Annotated[float, Meta(description="least difference of load worth a move")] = 0.0
    load_balance_scope: Annotated[Literal["cluster", "unit"], Meta(description="where a request may move to")] = (
        "cluster"
    )
    failover_domain: Annotated[
        Literal["instance", "node", "instance-unit", "node-unit"],
        Meta(description="what is given up together when an instance fails"),
    ] = "instance"
    instance_staleness: Annotated[Duration, Meta(description="older figures of an instance are not believed")] = 60
    req_select_rule: Annotated[
        Literal["NUM_REQ", "TOKEN", "RATIO"],
        Meta(description="how much moves is counted in requests, in tokens or as a share of them"),
    ] = "TOKEN"
    req_select_order: Annotated[
        Literal["LCR", "FCR", "LR", "SR", "FCW", "FCWSR"], Meta(description="which requests move first")
    ] = "SR"
    req_select_value: Annotated[float, Meta(description="how much moves, counted by the rule")] = 1024
    adaptive_pd: Annotated[bool, Meta(description="let instances change between prefill and decode")] = False
    ttft_slo: Annotated[Duration, Meta(description="aim for the time to the first token")] = 6
    tpot_slo: Annotated[Duration, Meta(description="aim for the time per output token")] = 0.05
    ttft_slo_dispatch_threshold: Annotated[
        float, Meta(description="share of `ttft_slo` up to which an instance takes more")
    ] = 0.85
    tpot_slo_dispatch_threshold: Annotated[
        float, Meta(description="share of `tpot_slo` up to which an instance takes more")
    ] = 0.85
    tpot_migrate_out_ceil_threshold: Annotated[
        float, Meta(description="share of `tpot_slo` over which requests leave an instance")
    ] = 0.95
    tpot_migrate_out_floor_threshold: Annotated[
        float, Meta(description="share of `tpot_slo` under which an instance hands its requests on")
    ] = 0.60
    ttft_profile: Annotated[
        str, Meta(description="file of measured times to the first token; a bundled one if left out")
    ] = ""
    tpot_profile: Annotated[
        str, Meta(description="file of measured times per output token; a bundled one if left out")
    ] = ""
    migrate_timeout: Annotated[Duration, Meta(description="for one migration")] = 5
    cool_down: Annotated[Duration, Meta(description="rest of an instance that just sent or received; 0 is none")] = 2


class Discovery(Section, frozen=True):
    """One place to look for backends."""

    type: Annotated[str, Meta(description="a registered discoverer")]
    parameters: Annotated[dict[str, Any], Meta(description="what this discoverer takes")] = {}


class Plugins(Section, frozen=True):
    """Which plugins are loaded, and their parameters."""

    on_error: Annotated[Literal["fail", "skip"], Meta(description="what a plugin that cannot be loaded does")] = "fail"
    disabled: Annotated[list[str], Meta(description="entry points not loaded")] = []
    enabled: Annotated[list[str] | None, Meta(description="the only entry points loaded besides the bundled")] = None
    parameters: Annotated[dict[str, dict[str, Any]], Meta(description="`[plugins.NAME]`: parameters by type")] = field(
        default_factory=dict
    )


class Config(Section, frozen=True):
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
