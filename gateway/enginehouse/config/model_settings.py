"""The tables of models: how each is launched, where, how often, and what it can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from enginehouse.config.section import (
    BrokenStreamRule,
    ByteSize,
    Count,
    Duration,
    HiddenText,
    Period,
    Positive,
    ProgressForm,
    Section,
    about,
)
from enginehouse.config.server import TimeoutSettings
from enginehouse.domain.replica import Role

ANY_ANSWER = "none"
"""The ``health_path`` of an engine without a health endpoint: any answer counts as healthy."""

# What backends and launched models say of themselves alike
Priority = Annotated[Count, about("lower is better")]
Weight = Annotated[
    float,
    about(
        "its share of the requests, relative to others, with `round_robin`, `random`, `least_pending`, "
        "`p2c` and `session`",
        ge=0.001,
    ),
]
ServedRole = Annotated[Role, about("role when prefill and decode are disaggregated")]
Zone = Annotated[str, about("privacy zone that it is in; `[zones]` says which requests stay there")]
Tier = Annotated[Count, about("how good its models are; `routing.least_tier` asks for one")]
Concurrency = Annotated[
    Count, about("most concurrent requests, others wait; 0 for the limit that the engine reports, if any")
]
OwnTimeouts = Annotated[TimeoutSettings | None, about("time limits that replace the common `[timeouts]`")]


class CapabilitySettings(Section, frozen=True):
    """The capabilities of a model as this backend serves it. An unset capability is unknown, and refuses no request."""

    context_length: Annotated[Positive, about("longest prompt and answer together, in tokens")] | None = None
    vision: Annotated[bool | None, about("accepts images")] = None
    tools: Annotated[bool | None, about("accepts tools")] = None
    json_mode: Annotated[bool | None, about("can be restricted to JSON")] = None
    embeddings: Annotated[bool | None, about("computes embeddings")] = None
    parent: Annotated[str | None, about("the model that it is a LoRA adapter of")] = None


class BodyFilterSettings(Section, frozen=True):
    """Changes to the request bodies of a model. `a.b` is the field `b` of the object `a`; `model` cannot be changed."""

    strip: Annotated[list[str], about("fields to remove")] = []
    set: Annotated[dict[str, Any], about("fields to set after that, in place of the client's")] = {}


class ReplicaRange(Section, frozen=True):
    """How few and how many replicas a model may have, for `replicas = { min, max }`."""

    max: Annotated[Positive, about("most replicas")]
    min: Annotated[Count, about("fewest replicas")] = 0

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

    driver: Annotated[str, about("`llamacpp`, `vllm`, `sglang`, `sim` or a plugin's")] = ""
    path: Annotated[str, about("the model's file or folder")] = ""
    source: Annotated[
        str,
        about(
            "where its first load downloads it from, in place of `path`: `hf.co/ORG/REPO:QUANT`, "
            "`ollama.com/MODEL:TAG` or the URL of a GGUF file"
        ),
    ] = ""
    command: Annotated[
        str,
        about(
            "launch line that replaces the driver's, with `${port}`, `${bind}`, `${path}`, `${model}`, "
            "`${env:NAME}`, `${cache_folder}`, and `${nodes}`, `${node_rank}`, `${meet_at}` of an engine on several "
            "machines"
        ),
    ] = ""
    options: Annotated[dict[str, Any], about("options of the driver, for its own launch line")] = {}
    args: Annotated[list[str], about("arguments to add to the launch line")] = []
    env: Annotated[dict[str, HiddenText], about("environment variables of the engine")] = {}
    host: Annotated[
        str | Annotated[list[str], Meta(min_length=1)],
        about("host that it runs on, or a list of hosts, each with its own engines"),
    ] = "local"
    zone: Zone = ""
    tier: Tier = 0
    replicas: Annotated[
        Positive | ReplicaRange,
        about(
            "number of engines to launch, on each host; or `{ min = 0, max = 4 }` by load: in total, distributed "
            "over its hosts in turn"
        ),
    ] = 1
    scale_up_wait: Annotated[
        Duration, about("one more replica is wanted when requests will probably wait for longer than this")
    ] = 2
    scale_down_idle: Annotated[
        Duration, about("one replica fewer is wanted when it has not been needed for this long")
    ] = 300
    priority: Priority = 0
    weight: Weight = 1.0
    role: ServedRole = Role.NEUTRAL
    ttl: Annotated[Duration, about("unload after this idle time, even if pinned; 0 for never")] = 0
    idle: Annotated[Literal["stop", "sleep"], about("action after `ttl`; an engine that cannot sleep stops")] = "stop"
    evict: Annotated[
        Literal["stop", "sleep"],
        about(
            "how it makes room for another model; an engine that cannot sleep, or keeps more than half of "
            "its memory asleep, stops"
        ),
    ] = "stop"
    memory: Annotated[ByteSize | None, about("memory that the model needs; by default, the measured one")] = None
    gpus: Annotated[
        list[Count] | Positive | None,
        about(
            "number of GPUs for each engine, or a list of GPU numbers (`CUDA_VISIBLE_DEVICES`); by "
            "default, those of its host"
        ),
    ] = None
    endpoints: Annotated[
        list[str] | None,
        about(
            "paths that its engines serve besides `/v1/chat/completions`, `/v1/completions` and "
            "`/v1/embeddings`, such as `/v1/messages`; by default, the driver's"
        ),
    ] = None
    kv_events: Annotated[
        bool,
        about(
            "its engines, vLLM or SGLang on this machine, publish what their prefix caches store and "
            "evict, for `cache_aware`; a `command` needs `--kv-events-config ${kv_events}`"
        ),
    ] = False
    keep_cache: Annotated[
        ByteSize,
        about(
            "space on disk for the prefix cache of an engine that is stopped, which the next one gets back; "
            "0 for none. For llama.cpp's engines on this machine; a `command` needs `--slot-save-path ${cache_folder}`"
        ),
    ] = 2 << 30
    keep_cache_wait: Annotated[Duration, about("longest time by which that delays a swap")] = 0.5
    placement: Annotated[
        dict[str, Any], about("options of its host's launcher, over those in `hosts.*.placement`")
    ] = {}
    place_timeout: Annotated[Duration, about("longest wait for capacity in a full cluster; 0 for no limit")] = 600
    stop_command: Annotated[str, about("command that replaces SIGTERM")] = ""
    health_path: Annotated[
        str, about("path that answers 200 when it is ready; by default the driver's; `none` accepts any answer")
    ] = ""
    start_timeout: Annotated[
        Period | None, about("time limit for starting; by default 2m, or 24h with `start_silence`")
    ] = None
    start_silence: Annotated[
        Period | None,
        about(
            "longest time of a start without a sign of progress, such as output or bytes read; by default "
            "as `start_timeout`"
        ),
    ] = None
    stop_timeout: Annotated[Duration, about("time to stop before the gateway kills it")] = 10
    name: Annotated[str, about("`name` in `GET /v1/models`, for people")] = ""
    description: Annotated[str, about("`description` in `GET /v1/models`, for people")] = ""
    unlisted: Annotated[
        bool, about("leave it and its aliases out of `GET /v1/models`; requests may still name them")
    ] = False
    metadata: Annotated[dict[str, Any], about("`meta` in `GET /v1/models`; the gateway does not read it")] = {}
    preload: Annotated[
        bool | Literal["again"],
        about(
            "load all its `replicas` when the gateway starts; in an upgrade only those for which nothing has to stop; "
            '`"again"`: also when the `ttl` of another model has left the host empty'
        ),
    ] = False
    pin: Annotated[bool, about("never evict it for another model")] = False
    concurrency: Concurrency = 0
    progress: Annotated[ProgressForm | None, about("overrides `scheduling.progress` for this model")] = None
    broken_stream: Annotated[BrokenStreamRule | None, about("overrides `routing.broken_stream`")] = None
    timeouts: OwnTimeouts = None
    filters: BodyFilterSettings = BodyFilterSettings()

    @property
    def sleeps(self) -> bool:
        """Whether its engine may be put to sleep."""
        return "sleep" in (self.idle, self.evict)

    @property
    def launches(self) -> bool:
        """Whether the gateway launches an engine for the model."""
        return bool(self.driver or self.path or self.source or self.command)

    @property
    def engine_driver(self) -> str:
        """The driver of its engines: by default ``llamacpp`` for a GGUF file or a source, else ``openai``."""
        is_gguf = self.path.lower().endswith(".gguf") or bool(self.source)
        return self.driver or ("llamacpp" if is_gguf else "openai")

    @property
    def hosts(self) -> Sequence[str]:
        """The hosts that it may run on."""
        return [self.host] if isinstance(self.host, str) else self.host

    def backends(self, name: str) -> Mapping[str, str]:
        """The managed backends of the model ``name``, each with its host: its own name, then ``NAME-2``, ``NAME-3`` ...

        Those of a range of replicas keep their names and hosts when their number changes.
        """
        return self._backends(name, self.replicas if isinstance(self.replicas, int) else self.replicas.now)

    def possible_backends(self, name: str) -> Mapping[str, str]:
        """All managed backends that the model ``name`` may have, at any load, each with its host."""
        return self._backends(name, self.replicas if isinstance(self.replicas, int) else self.replicas.max)

    def _backends(self, name: str, replicas: int) -> Mapping[str, str]:
        if not self.launches:
            return {}
        hosts = self.hosts
        if isinstance(self.replicas, int):
            places = [host for host in hosts for _ in range(replicas)]
        else:
            places = [hosts[number % len(hosts)] for number in range(replicas)]
        return {f"{name}-{number}" if number > 1 else name: host for number, host in enumerate(places, 1)}
