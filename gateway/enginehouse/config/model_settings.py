"""The tables of models: how each is launched, where, how often, and what it can do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from enginehouse.config.section import (
    BrokenStreamRule,
    ByteSize,
    Count,
    Duration,
    HiddenText,
    Positive,
    ProgressForm,
    Section,
)
from enginehouse.config.served import (
    CapabilitySettings,
    Concurrency,
    OwnTimeouts,
    Priority,
    ServedRole,
    Tier,
    Weight,
    Zone,
)
from enginehouse.domain.replica import Role


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
    zone: Zone = ""
    tier: Tier = 0
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
    priority: Priority = 0
    weight: Weight = 1.0
    role: ServedRole = Role.NEUTRAL
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
    kv_events: Annotated[
        bool,
        Meta(
            description="its engines, vLLM or SGLang on this machine, publish what their prefix caches store and "
            "evict, for `cache_aware`; a `command` needs `--kv-events-config ${kv_events}`"
        ),
    ] = False
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
    concurrency: Concurrency = 0
    progress: Annotated[ProgressForm | None, Meta(description="overrides `scheduling.progress` for this model")] = None
    broken_stream: Annotated[BrokenStreamRule | None, Meta(description="overrides `routing.broken_stream`")] = None
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
