"""The settings of a simulated engine's server."""

from __future__ import annotations

from typing import Literal

import msgspec

from enginehouse_sim.simulator.domain.constants import CoreSettings


class KvEventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's ``KVEventsConfig``: the ZeroMQ addresses to bind, and two limits.

    ``buffer_steps``: the most recent batches to keep for clients of ``replay_endpoint``. ``hwm``: the most messages to
    queue for a slow subscriber.
    """

    enable_kv_cache_events: bool = True
    publisher: Literal["zmq"] = "zmq"
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    topic: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The command line's options, durations in seconds, lengths in tokens.

    ``loras``: names of adapters, served as models. ``control_port``: a second port, which answers while the first one
    refuses connections. ``vision``, ``tools`` and ``json_mode`` are published in the model list; ``None`` leaves them
    out. ``instance_id``, ``node``, ``unit`` and ``role``: the engine's place in a cluster. ``llumlet_port``: the port
    for migration commands, ``None`` for none. Blocks move over links of ``kv_bandwidth`` bytes per second.
    ``kv_events``: where the prefix cache's events are published, ``None`` for nowhere.
    """

    core: CoreSettings = CoreSettings()
    models: tuple[str, ...] = ("sim",)
    loras: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    control_port: int | None = None
    api_key: str | None = None
    start_delay: float = 0.0
    vision: bool | None = None
    tools: bool | None = None
    json_mode: bool | None = None
    instance_id: str = ""
    node: str = ""
    unit: str = ""
    role: Literal["neutral", "prefill", "decode"] = "neutral"
    llumlet_port: int | None = None
    kv_bandwidth: float = 64e9
    kv_events: KvEventsConfig | None = None

    @property
    def context_length(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self.core.constants.max_model_len
