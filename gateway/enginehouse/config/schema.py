"""The configuration as msgspec structs, one for each table of the file. Unknown keys are errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from msgspec import field

from enginehouse.config.auth import AuthSettings, PriceSettings, UsageSettings
from enginehouse.config.auth import KeySettings as KeySettings
from enginehouse.config.model_settings import BodyFilterSettings as BodyFilterSettings
from enginehouse.config.model_settings import CapabilitySettings as CapabilitySettings
from enginehouse.config.model_settings import (
    Concurrency,
    OwnTimeouts,
    Priority,
    ServedRole,
    Tier,
    Weight,
    Zone,
)
from enginehouse.config.model_settings import ModelSettings as ModelSettings
from enginehouse.config.model_settings import ReplicaRange as ReplicaRange
from enginehouse.config.model_settings import SizedRange as SizedRange
from enginehouse.config.routing import RoutingSettings
from enginehouse.config.scheduling import ReschedulingSettings, SchedulingSettings
from enginehouse.config.section import ByteSize, Count, Period, SecretText, Section, about
from enginehouse.config.server import CheckSettings as CheckSettings
from enginehouse.config.server import ServerSettings as ServerSettings
from enginehouse.config.server import StreamSettings as StreamSettings
from enginehouse.config.server import TimeoutSettings as TimeoutSettings
from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.replica import Role


class KvEventSettings(Section, frozen=True):
    """The ZeroMQ sockets of an engine's events, as vLLM's and SGLang's `--kv-events-config` names them."""

    endpoint: Annotated[str, about("where it publishes them, such as `tcp://10.0.0.5:5557`", min_length=1)]
    replay: Annotated[str, about("where it sends lost events again, its `replay_endpoint`")] = ""
    topic: Annotated[str, about("their topic")] = ""
    ranks: Annotated[
        int, about("its data-parallel ranks; each publishes at a TCP port of its own, one after the other", ge=1)
    ] = 1


class PullSettings(Section, frozen=True):
    """Downloads of models: `enginehouse pull` and `models.*.source`."""

    hub: Annotated[
        str, about("address of the Hugging Face hub or a mirror; by default `$HF_ENDPOINT`, else the hub")
    ] = ""
    registry: Annotated[str, about("address of Ollama's registry or a mirror")] = "https://registry.ollama.ai"
    folder: Annotated[str, about("folder of the models; by default `enginehouse/models` in the user's data folder")] = (
        ""
    )

    @property
    def models_folder(self) -> Path:
        """The folder of the models."""
        return Path(self.folder).expanduser() if self.folder else platformdirs.user_data_path("enginehouse") / "models"


class HostSettings(Section, frozen=True):
    """A machine, or a set of GPUs, with its own memory budget and queue."""

    memory: Annotated[ByteSize | None, about("memory budget of the `memory` swapper; unlimited by default")] = None
    gpus: Annotated[
        list[Count] | Literal["auto"],
        about('numbers of the NVIDIA GPUs that its engines may use; `"auto"` for all of this machine'),
    ] = "auto"
    node: Annotated[str, about("label for failure domains")] = ""
    unit: Annotated[str, about("label for failure domains")] = ""
    max_loads: Annotated[Count, about("models that load at the same time; 0 for no limit")] = 1
    launcher: Annotated[str, about("launcher of its engines: `local` or a plugin's")] = "local"
    ports: Annotated[str, about("first and last port that its engines may listen on")] = "20000-32767"
    placement: Annotated[
        dict[str, Any], about("options of its launcher for the placement of engines, such as labels of nodes")
    ] = {}


class BackendModelSettings(CapabilitySettings, frozen=True):
    """A model of a backend."""

    upstream: Annotated[str, about("name that this backend has for the model, if it is another one")] = ""


class BackendSettings(Section, frozen=True):
    """An engine server that is already running."""

    url: Annotated[str, about("base URL, without `/v1`")]
    driver: Annotated[str, about("`llamacpp`, `vllm`, `sglang`, `openai`, `sim` or a plugin's")] = "openai"
    priority: Priority = 0
    weight: Weight = 1.0
    role: ServedRole = Role.NEUTRAL
    zone: Zone = ""
    tier: Tier = 0
    host: Annotated[str, about("host that it runs on; give a server that loads models itself a host of its own")] = (
        "local"
    )
    models: Annotated[
        list[str] | dict[str, BackendModelSettings] | None,
        about("models that it serves; by default, those that the engine lists"),
    ] = None
    concurrency: Concurrency = 0
    kv_events: Annotated[
        KvEventSettings | None,
        about("where the engine publishes what its prefix cache stores and evicts, for `cache_aware`"),
    ] = None
    api_key: Annotated[SecretText, about('API key for the engine; `"env:NAME"` or `"file:PATH"`')] = ""
    pass_authorization: Annotated[bool, about("forward the client's key to the engine")] = False
    pass_caller: Annotated[
        bool, about("tell it the caller and the priority of each request, as to a gateway with a key for this one")
    ] = False
    verify_tls: Annotated[bool, about("verify the engine's TLS certificate")] = True
    timeouts: OwnTimeouts = None


class DiscoverySettings(Section, frozen=True):
    """A source of backends that come and go. All other keys of the table are parameters of the discoverer."""

    type: Annotated[str, about("`static`, `dns`, `mdns` or a plugin's")]
    prefix: Annotated[str | None, about("begins the names of its backends; by default its own name and a hyphen")] = (
        None
    )
    api_key: Annotated[
        SecretText, about('API key for engines that come without one; `"env:NAME"` or `"file:PATH"`')
    ] = ""
    parameters: Annotated[dict[str, Any], about("parameters of the discoverer")] = {}


class PluginSettings(Section, frozen=True):
    """The plugins to load, and their parameters."""

    on_error: Annotated[
        Literal["fail", "skip"], about("if a plugin cannot be loaded: `fail` refuses to start, `skip` logs a warning")
    ] = "fail"
    disabled: Annotated[list[str], about("entry points that are not loaded")] = []
    enabled: Annotated[list[str] | None, about("entry points to load besides the bundled ones; all by default")] = None
    parameters: Annotated[
        dict[str, dict[str, Any]],
        about("`[plugins.TYPE]`: the parameters of a type; `[plugins.KIND.TYPE]`: of that kind only"),
    ] = field(default_factory=dict)


class InterceptorSettings(Section, frozen=True, kw_only=True):
    """One interceptor or guard. In place of the table, its type alone is enough."""

    type: Annotated[str, about("a registered interceptor or guard")]
    timeout: Annotated[Period, about("time in which it must decide about a request or an answer")] = 5
    on_error: Annotated[
        Literal["refuse", "pass"],
        about("if it fails or takes too long: `refuse` gives the client an error, `pass` goes on without it"),
    ] = "refuse"
    parameters: Annotated[dict[str, Any], about("its parameters")] = {}


class LimitSettings(Section, frozen=True):
    """Where the gateway counts what keys have used of their limits."""

    store: Annotated[str, about("`memory`, or a plugin's that several gateways share, such as `redis`")] = "memory"
    url: Annotated[SecretText, about('address of a shared store; `"env:NAME"` or `"file:PATH"`')] = ""


class ZoneSettings(Section, frozen=True):
    """The requests that may only go to the backends of a zone. One match suffices; `*` and `?` match as in a shell."""

    models: Annotated[list[str], about("models that clients name, or that would serve the request")] = []
    keys: Annotated[list[str], about("names of keys")] = []
    headers: Annotated[
        list[Annotated[str, about("`NAME: VALUE`", pattern=r"^[A-Za-z0-9-]+: *\S")]],
        about("headers with their values, such as `x-zone: private`"),
    ] = []


class SimulatorSettings(Section, frozen=True):
    """What simulated engines do in replays. The gateway itself does not read it."""

    policy: Annotated[
        Literal["fcfs", "priority"] | None,
        about("the order of waiting requests; by default, the flag `--policy` of the engine decides"),
    ] = None


class Config(Section, frozen=True):
    """``enginehouse.toml``."""

    guards: Annotated[
        list[str | InterceptorSettings], about("guards that see each request and its answer, in this order")
    ] = []
    interceptors: Annotated[
        list[str | InterceptorSettings],
        about("interceptors that see each request, after the guards, and its answer, before them; in this order"),
    ] = []
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    limits: LimitSettings = LimitSettings()
    usage: UsageSettings = UsageSettings()
    prices: Annotated[dict[str, PriceSettings], about("by model; `*` and `?` match as in a shell")] = {}
    telemetry: TelemetrySettings = TelemetrySettings()
    routing: RoutingSettings = RoutingSettings()
    checks: CheckSettings = CheckSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    streams: StreamSettings = StreamSettings()
    hosts: dict[str, HostSettings] = {}
    backends: dict[str, BackendSettings] = {}
    models: dict[str, ModelSettings] = {}
    scheduling: SchedulingSettings = SchedulingSettings()
    rescheduling: ReschedulingSettings = ReschedulingSettings()
    discovery: dict[str, DiscoverySettings] = {}
    services: Annotated[
        dict[str, dict[str, Any]], about("services of plugins that run, by type, with their parameters")
    ] = {}
    batches: Annotated[dict[str, Any] | None, about("the service `batches`: the same as `[services.batches]`")] = None
    pull: PullSettings = PullSettings()
    zones: dict[str, ZoneSettings] = {}
    simulator: SimulatorSettings = SimulatorSettings()
    compat: Annotated[
        dict[str, bool], about("other programs whose paths the gateway answers too, for their tools: `llama_swap`")
    ] = {}
    plugins: PluginSettings = PluginSettings()

    @property
    def service_tables(self) -> Mapping[str, dict[str, Any]]:
        """The parameters of the services that run because they have a table, by type."""
        return self.services if self.batches is None else {**self.services, "batches": self.batches}

    def service_path(self, type: str) -> tuple[str, ...]:
        """The path of the table with the parameters of a service."""
        return ("batches",) if type == "batches" and self.batches is not None else ("services", type)

    def host_settings(self, host: str) -> HostSettings:
        """The settings of ``host``, which need not have a table."""
        return self.hosts.get(host, HostSettings())
