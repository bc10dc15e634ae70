"""The configuration as ``msgspec`` structs, one for each table of the file. Unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from enginehouse.config.auth import AuthSettings, LimitAmounts
from enginehouse.config.auth import KeySettings as KeySettings
from enginehouse.config.guards import GuardSettings
from enginehouse.config.kv_events import KvEventSettings
from enginehouse.config.limits import LimitSettings
from enginehouse.config.pull import PullSettings
from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.config.routing import RoutingSettings
from enginehouse.config.scheduling import SchedulingSettings
from enginehouse.config.section import (
    BrokenStreamRule,
    ByteSize,
    Count,
    Duration,
    HiddenText,
    Period,
    Port,
    Positive,
    ProgressForm,
    SecretText,
    Section,
)
from enginehouse.config.simulator import SimulatorSettings
from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.config.usage import PriceSettings, UsageSettings
from enginehouse.config.zones import ZoneSettings
from enginehouse.domain.replica import Role

Workers = Annotated[int, Meta(ge=1, le=256)] | Literal["auto"]


class ServerSettings(Section, frozen=True):
    """The gateway's address, its limits and its shutdown."""

    host: Annotated[str, Meta(description="address to listen on")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="0 picks a free port")] = 8080
    workers: Annotated[
        Workers,
        Meta(description='number of processes that relay requests; `"auto"`: as many as there are cores; 1: no others'),
    ] = 1
    worker_timeout: Annotated[
        Duration,
        Meta(description="a worker whose event loop is held for so long is replaced; 0 waits for ever"),
    ] = 10
    max_body: Annotated[ByteSize, Meta(description="largest request body accepted")] = 32 * 1024**2
    max_body_memory: Annotated[
        ByteSize,
        Meta(description="most bytes of request bodies of all connections together; above it, 503; 0 for no limit"),
    ] = 1024**3
    hold_answers: Annotated[
        ByteSize,
        Meta(
            description="answers without a stream, up to this size, are delivered when they are whole: until then "
            "another engine can take over; 0 passes each on as it comes"
        ),
    ] = 1024**2
    max_engine_memory: Annotated[
        ByteSize,
        Meta(
            description="most bytes held of engines' answers: those to the gateway's own questions, held and gathered "
            "ones, and what continues streams; what has no room is dropped; 0 for no limit"
        ),
    ] = 1024**3
    drain_timeout: Annotated[Duration, Meta(description="time for live requests to finish when the gateway stops")] = 30
    drain_delay: Annotated[
        Duration,
        Meta(description="time in which a stopping gateway still accepts requests, while `/ready` answers 503"),
    ] = 0
    name: Annotated[
        str, Meta(description="name of this gateway; it takes over the engines of a killed gateway of the same name")
    ] = "default"
    watch: Annotated[bool, Meta(description="reload this file when it changes")] = False
    allowed_hosts: Annotated[
        list[str],
        Meta(
            description="while no keys are set: names in `Host` that operators' pages accept, besides those of "
            '`host` and of the loopback interface; `*` and `?` match as in a shell, `["*"]` for any'
        ),
    ] = []
    per_address: Annotated[
        LimitAmounts | None, Meta(description="limits of each client address, besides those of keys")
    ] = None
    trusted_proxies: Annotated[
        list[str],
        Meta(description="addresses or networks of proxies whose `X-Forwarded-For` names the client"),
    ] = []
    cors: Annotated[list[str], Meta(description='web origins whose pages may call the gateway; `["*"]` for any')] = []


class CheckSettings(Section, frozen=True):
    """Health probes. Live requests count as well."""

    interval: Annotated[Period, Meta(description="time between two probes of one backend")] = 5
    timeout: Annotated[Duration, Meta(description="time limit of one probe")] = 5
    failures: Annotated[Positive, Meta(description="consecutive failures that make a backend unhealthy")] = 3
    successes: Annotated[Positive, Meta(description="consecutive successes that make it healthy again")] = 2


class TimeoutSettings(Section, frozen=True):
    """The time limits for engines, and for clients that do not read. 0 means no limit."""

    connect: Annotated[Duration, Meta(description="to connect")] = 5
    first_byte: Annotated[Duration, Meta(description="until the first byte of the answer")] = 600
    stall: Annotated[Duration, Meta(description="between two pieces of the answer")] = 120
    total: Annotated[Duration, Meta(description="for the whole answer")] = 0
    client: Annotated[
        Duration, Meta(description="time for which a client may leave an answer unread; then its request is cancelled")
    ] = 60


class HostSettings(Section, frozen=True):
    """A machine, or a set of GPUs, with its own memory budget and queue."""

    memory: Annotated[
        ByteSize | None, Meta(description="memory budget of the `memory` swapper; unlimited by default")
    ] = None
    gpus: Annotated[
        list[Count] | Literal["auto"],
        Meta(description='numbers of the NVIDIA GPUs that its engines may use; `"auto"` for all of this machine'),
    ] = "auto"
    node: Annotated[str, Meta(description="label for failure domains")] = ""
    unit: Annotated[str, Meta(description="label for failure domains")] = ""
    max_loads: Annotated[Count, Meta(description="models that load at the same time; 0 for no limit")] = 1
    launcher: Annotated[str, Meta(description="launcher of its engines: `local` or a plugin's")] = "local"
    ports: Annotated[str, Meta(description="first and last port that its engines may listen on")] = "20000-32767"
    placement: Annotated[
        dict[str, Any], Meta(description="options of its launcher for places of engines, such as labels of nodes")
    ] = {}


class CapabilitySettings(Section, frozen=True):
    """The capabilities of a model as this backend serves it. An unset capability is unknown, and refuses no request."""

    context_length: Annotated[Positive, Meta(description="longest prompt and answer together, in tokens")] | None = None
    vision: Annotated[bool | None, Meta(description="accepts images")] = None
    tools: Annotated[bool | None, Meta(description="accepts tools")] = None
    json_mode: Annotated[bool | None, Meta(description="can be restricted to JSON")] = None
    embeddings: Annotated[bool | None, Meta(description="computes embeddings")] = None
    parent: Annotated[str | None, Meta(description="the model that it is a LoRA adapter of")] = None


class BackendModelSettings(CapabilitySettings, frozen=True):
    """A model of a backend."""

    upstream: Annotated[str, Meta(description="name that this backend has for the model, if it is another one")] = ""


class BackendSettings(Section, frozen=True):
    """An engine server that is already running."""

    url: Annotated[str, Meta(description="base URL, without `/v1`")]
    driver: Annotated[str, Meta(description="`llamacpp`, `vllm`, `sglang`, `openai`, `sim` or a plugin's")] = "openai"
    priority: Annotated[Count, Meta(description="lower is better")] = 0
    weight: Annotated[
        float,
        Meta(
            ge=0.001,
            description="its share of the requests, relative to others, with `round_robin`, `random`, `least_pending`, "
            "`p2c` and `session`",
        ),
    ] = 1.0
    role: Annotated[Role, Meta(description="role when prefill and decode are disaggregated")] = Role.NEUTRAL
    zone: Annotated[str, Meta(description="privacy zone that it is in; `[zones]` says which requests stay there")] = ""
    tier: Annotated[Count, Meta(description="how good its models are; `routing.least_tier` asks for one")] = 0
    host: Annotated[
        str, Meta(description="host that it runs on; give a server that loads models itself a host of its own")
    ] = "local"
    models: Annotated[
        list[str] | dict[str, BackendModelSettings] | None,
        Meta(description="models that it serves; by default, those that the engine lists"),
    ] = None
    concurrency: Annotated[
        Count,
        Meta(description="most concurrent requests, others wait; 0 for the limit that the engine reports, if any"),
    ] = 0
    kv_events: Annotated[
        KvEventSettings | None,
        Meta(description="where the engine publishes what its prefix cache stores and evicts, for `cache_aware`"),
    ] = None
    api_key: Annotated[SecretText, Meta(description='API key for the engine; `"env:NAME"` or `"file:PATH"`')] = ""
    pass_authorization: Annotated[bool, Meta(description="forward the client's key to the engine")] = False
    pass_caller: Annotated[
        bool,
        Meta(
            description="tell it the caller and the priority of each request, as to a gateway with a key for this one"
        ),
    ] = False
    verify_tls: Annotated[bool, Meta(description="verify the engine's TLS certificate")] = True
    timeouts: Annotated[
        TimeoutSettings | None, Meta(description="time limits that replace the common `[timeouts]`")
    ] = None


class BodyFilterSettings(Section, frozen=True):
    """Changes to the request bodies of a model. `a.b` is the field `b` of the object `a`; `model` cannot be changed."""

    strip: Annotated[list[str], Meta(description="fields to remove")] = []
    set: Annotated[dict[str, Any], Meta(description="fields to set after that, in place of the client's")] = {}


class ReplicaRange(Section, frozen=True):
    """How few and how many replicas a model may have, for `replicas = { min, max }`."""

    max: Annotated[Positive, Meta(description="most replicas")]
    min: Annotated[Count, Meta(description="fewest replicas")] = 0

    @property
    def now(self) -> int:
        """The number of backends that there are for them: one at least, stopped while no replica is wanted."""
        return max(1, self.min)


class SizedRange(ReplicaRange, frozen=True):
    """A range whose scaler wants ``size`` replicas now."""

    size: int = 0

    @property
    def now(self) -> int:
        return max(1, self.size)


class ModelSettings(CapabilitySettings, frozen=True):
    """A model that the gateway launches on demand.

    Without `driver`, `path`, `source` and `command`, it launches nothing: the table then declares capabilities for
    every backend that serves the model.
    """

    driver: Annotated[str, Meta(description="`llamacpp`, `vllm`, `sglang`, `sim` or a plugin's")] = ""
    path: Annotated[str, Meta(description="the model's file or folder")] = ""
    source: Annotated[
        str,
        Meta(
            description="where its first load downloads it from, in place of `path`: `hf.co/ORG/REPO:QUANT`, "
            "`ollama.com/MODEL:TAG` or the URL of a GGUF file"
        ),
    ] = ""
    command: Annotated[
        str,
        Meta(
            description="launch line that replaces the driver's, with `${port}`, `${bind}`, `${path}`, `${model}`, "
            "`${env:NAME}`, and `${nodes}`, `${node_rank}`, `${meet_at}` of an engine on several machines"
        ),
    ] = ""
    options: Annotated[dict[str, Any], Meta(description="options of the driver, for its own launch line")] = {}
    args: Annotated[list[str], Meta(description="arguments to add to the launch line")] = []
    env: Annotated[dict[str, HiddenText], Meta(description="environment variables of the engine")] = {}
    host: Annotated[
        str | Annotated[list[str], Meta(min_length=1)],
        Meta(description="host that it runs on, or a list of hosts, each with its own engines"),
    ] = "local"
    zone: Annotated[str, Meta(description="privacy zone that it is in; `[zones]` says which requests stay there")] = ""
    tier: Annotated[Count, Meta(description="how good its models are; `routing.least_tier` asks for one")] = 0
    replicas: Annotated[
        Positive | ReplicaRange,
        Meta(
            description="number of engines to launch, on each host; or `{ min = 0, max = 4 }` by load: in all, dealt "
            "out to its hosts in turn"
        ),
    ] = 1
    scale_up_wait: Annotated[
        Duration, Meta(description="a replica more is wanted when requests will probably wait for longer than this")
    ] = 2
    scale_down_idle: Annotated[
        Duration, Meta(description="a replica less is wanted when it was not needed for so long")
    ] = 300
    priority: Annotated[Count, Meta(description="lower is better")] = 0
    weight: Annotated[
        float,
        Meta(
            ge=0.001,
            description="its share of the requests, relative to others, with `round_robin`, `random`, `least_pending`, "
            "`p2c` and `session`",
        ),
    ] = 1.0
    role: Annotated[Role, Meta(description="role when prefill and decode are disaggregated")] = Role.NEUTRAL
    ttl: Annotated[Duration, Meta(description="unload after this idle time, even if pinned; 0 for never")] = 0
    idle: Annotated[
        Literal["stop", "sleep"],
        Meta(description="action after `ttl`; an engine that cannot sleep stops"),
    ] = "stop"
    evict: Annotated[
        Literal["stop", "sleep"],
        Meta(
            description="how it makes room for another model; an engine that cannot sleep, or keeps more than half of "
            "its memory asleep, stops"
        ),
    ] = "stop"
    memory: Annotated[
        ByteSize | None, Meta(description="memory that the model needs; by default, the measured one")
    ] = None
    gpus: Annotated[
        list[Count] | Positive | None,
        Meta(
            description="number of GPUs for each engine, or a list of GPU numbers (`CUDA_VISIBLE_DEVICES`); by "
            "default, those of its host"
        ),
    ] = None
    endpoints: Annotated[
        list[str] | None,
        Meta(
            description="paths that its engines serve besides `/v1/chat/completions`, `/v1/completions` and "
            "`/v1/embeddings`, such as `/v1/messages`; by default, the driver's"
        ),
    ] = None
    placement: Annotated[
        dict[str, Any], Meta(description="options of its host's launcher, over those in `hosts.*.placement`")
    ] = {}
    place_timeout: Annotated[
        Duration, Meta(description="longest wait for a place in a cluster that is full; 0 for no limit")
    ] = 600
    stop_command: Annotated[str, Meta(description="command that replaces SIGTERM")] = ""
    health_path: Annotated[
        str,
        Meta(description="path that answers 200 when it is ready; by default the driver's; `none` accepts any answer"),
    ] = ""
    start_timeout: Annotated[
        Duration | None, Meta(description="time limit for starting; by default 2m, or 24h with `start_silence`")
    ] = None
    start_silence: Annotated[
        Duration | None,
        Meta(
            description="longest time of a start without a sign of progress, such as output or bytes read; by default "
            "as `start_timeout`"
        ),
    ] = None
    stop_timeout: Annotated[Duration, Meta(description="time to stop before the gateway kills it")] = 10
    name: Annotated[str, Meta(description="`name` in `GET /v1/models`, for people")] = ""
    description: Annotated[str, Meta(description="`description` in `GET /v1/models`, for people")] = ""
    unlisted: Annotated[
        bool, Meta(description="leave it and its aliases out of `GET /v1/models`; requests may still name them")
    ] = False
    metadata: Annotated[
        dict[str, Any], Meta(description="`meta` in `GET /v1/models`; the gateway does not read it")
    ] = {}
    preload: Annotated[
        bool | Literal["again"],
        Meta(
            description="load all its `replicas` when the gateway starts; "
            '`"again"`: also when the `ttl` of another model has left the host empty'
        ),
    ] = False
    pin: Annotated[bool, Meta(description="never evict it for another model")] = False
    concurrency: Annotated[
        Count,
        Meta(description="most concurrent requests, others wait; 0 for the limit that the engine reports, if any"),
    ] = 0
    progress: Annotated[ProgressForm | None, Meta(description="overrides `scheduling.progress` for this model")] = None
    broken_stream: Annotated[BrokenStreamRule | None, Meta(description="overrides `routing.broken_stream`")] = None
    timeouts: Annotated[
        TimeoutSettings | None, Meta(description="time limits that replace the common `[timeouts]`")
    ] = None
    filters: BodyFilterSettings = BodyFilterSettings()

    @property
    def sleeps(self) -> bool:
        """Whether its engine may be put to sleep."""
        return "sleep" in (self.idle, self.evict)

    @property
    def launches(self) -> bool:
        """Whether the gateway launches an engine for the model."""
        return bool(self.driver or self.path or self.source or self.command)


class DiscoverySettings(Section, frozen=True):
    """A source of backends that come and go. All other keys of the table are parameters of the discoverer."""

    type: Annotated[str, Meta(description="`static`, `dns`, `mdns` or a plugin's")]
    prefix: Annotated[
        str | None, Meta(description="begins the names of its backends; by default its own name and a hyphen")
    ] = None
    api_key: Annotated[
        SecretText, Meta(description='API key for engines that come without one; `"env:NAME"` or `"file:PATH"`')
    ] = ""
    parameters: Annotated[dict[str, Any], Meta(description="parameters of the discoverer")] = {}


class PluginSettings(Section, frozen=True):
    """The plugins to load, and their parameters."""

    on_error: Annotated[
        Literal["fail", "skip"],
        Meta(description="if a plugin cannot be loaded: `fail` refuses to start, `skip` logs a warning"),
    ] = "fail"
    disabled: Annotated[list[str], Meta(description="entry points that are not loaded")] = []
    enabled: Annotated[
        list[str] | None, Meta(description="entry points to load besides the bundled ones; all by default")
    ] = None
    parameters: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="`[plugins.TYPE]`: the parameters of a type; `[plugins.KIND.TYPE]`: of that kind only"),
    ] = field(default_factory=dict)


class Config(Section, frozen=True):
    """``enginehouse.toml``."""

    guards: Annotated[
        list[str | GuardSettings], Meta(description="guards that see each request and its answer, in this order")
    ] = []
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    limits: LimitSettings = LimitSettings()
    usage: UsageSettings = UsageSettings()
    prices: Annotated[dict[str, PriceSettings], Meta(description="by model; `*` and `?` match as in a shell")] = {}
    telemetry: TelemetrySettings = TelemetrySettings()
    routing: RoutingSettings = RoutingSettings()
    checks: CheckSettings = CheckSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    hosts: dict[str, HostSettings] = {}
    backends: dict[str, BackendSettings] = {}
    models: dict[str, ModelSettings] = {}
    scheduling: SchedulingSettings = SchedulingSettings()
    rescheduling: ReschedulingSettings = ReschedulingSettings()
    discovery: dict[str, DiscoverySettings] = {}
    pull: PullSettings = PullSettings()
    zones: dict[str, ZoneSettings] = {}
    simulator: SimulatorSettings = SimulatorSettings()
    compat: Annotated[
        dict[str, bool],
        Meta(description="other programs whose paths the gateway answers too, for their tools: `llama_swap`"),
    ] = {}
    plugins: PluginSettings = PluginSettings()
