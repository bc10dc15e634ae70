"""The settings of a simulated engine's server, its status for a rescheduler, and its parts together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from enginehouse import InvalidRequest
from enginehouse.errors import ModelNotFound
from enginehouse.rescheduling import InstanceMetadata, InstanceStatus
from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.core.engine_core import CoreStep
from enginehouse_sim.simulator.core.migration import MigrationSlots
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine
from enginehouse_sim.simulator.server.bodies import EncodedPrompt, Work
from enginehouse_sim.simulator.server.faults import ActiveFaults
from enginehouse_sim.simulator.server.http import HttpListener
from enginehouse_sim.simulator.server.load_figures import load_figures
from enginehouse_sim.simulator.server.metrics import Metrics
from enginehouse_sim.simulator.server.runs import Run


class KvEventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's ``KVEventsConfig``: the ZeroMQ addresses to bind, and two limits.

    ``buffer_steps``: the most recent batches to keep for clients of ``replay_endpoint``. ``hwm``: the most messages to
    queue for a slow subscriber.
    """

    enable_kv_cache_events: bool = True
    publisher: Literal["zmq"] = "zmq"
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: Annotated[int, msgspec.Meta(ge=0)] = 10_000
    hwm: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 100_000
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
        return self.core.constants.max_model_len


DEFAULT_MAX_TOKENS = 16
"""The tokens of an answer without ``max_tokens`` that does not end by itself: OpenAI's default for completions."""


class Simulation:
    """A simulated engine with everything around it, which vLLM keeps in ``app.state``.

    ``slots``: the migrations of its llumlet, if there is one.
    """

    def __init__(self, settings: Settings, engine: BatchingEngine) -> None:
        self.settings = settings
        self.engine = engine
        self.metrics = Metrics(engine, settings.models[0])
        self.faults = ActiveFaults(engine.clock)
        self.slots: MigrationSlots | None = None
        self._metadata = InstanceMetadata(
            node_id=settings.node,
            unit_id=settings.unit,
            block_size=settings.core.constants.block_size,
            max_num_batched_tokens=settings.core.constants.max_num_batched_tokens,
        )
        self._instance_id = settings.instance_id
        self._last: CoreStep | None = None
        engine.on_step = self._on_step

    def _on_step(self, result: CoreStep) -> None:
        self._last = result
        self.metrics.on_step(result)

    def listen_at(self, listener: HttpListener) -> None:
        """Refuse connections there if a fault wants it. Its host and port are the instance's id if it has none."""
        self.faults.listener = listener
        self._instance_id = self._instance_id or listener.address.removeprefix("http://")

    def move_from(self, host: str, port: int) -> None:
        """Publish where the llumlet takes commands and other engines' requests."""
        self._metadata = msgspec.structs.replace(self._metadata, ip=host, llumlet_port=port, kvt_port=port)

    def status(self) -> dict[str, Any]:
        """The status of the instance for a cluster's rescheduler, and its metadata, under Llumnix's names."""
        engine, last = self.engine, self._last
        status = InstanceStatus(
            instance_id=self._instance_id,
            schedulable=not engine.failure and not engine.sleep_level,
            timestamp_ms=int(time.time() * 1000),
            update_id=engine.num_updates,
            recent_waiting_requests=tuple(engine.recent_requests()),
            step_id=last.scheduled.step if last is not None else 0,
            step_duration=last.seconds * 1000 if last is not None else 0.0,
            num_scheduled_prefill_tokens=last.load.prefill_tokens if last is not None else 0,
            **load_figures(engine.state),
            **(self.slots.figures() if self.slots is not None else {}),
        )
        constant = {"instance_type": self.settings.role, "backend_type": "sim"}
        sizes = {"data_parallel_size": 1, "tensor_parallel_size": 1}
        return {**msgspec.structs.asdict(self._metadata), **constant, **sizes, **msgspec.structs.asdict(status)}

    def run(self, work: Work, *, streams: bool = False) -> Run:
        return Run(work, self.engine, self.metrics, streams=streams)

    def lora(self, model: str) -> str | None:
        """The adapter that ``model`` names, ``None`` for a base model. Raises ``ModelNotFound``."""
        if model in self.settings.models:
            return None
        if model in self.settings.loras:
            return model
        raise ModelNotFound(model)

    def max_tokens(self, prompts: Sequence[EncodedPrompt], wanted: int | None, *, ends: bool = False) -> int:
        """The most tokens of each answer: ``wanted``, or a default.

        If the answers end by themselves (``ends``), the default is all the room after the longest prompt; else it is
        ``DEFAULT_MAX_TOKENS``, or the room if that is less. Raises ``InvalidRequest`` if the room is too small.
        """
        length = self.settings.context_length
        longest = max(len(prompt.token_ids) for prompt in prompts)
        least = 1 if wanted is None else wanted
        if least > length - longest:
            raise InvalidRequest(
                f"This model's maximum context length is {length} tokens, and the request asks for {longest} of input "
                f"and {least} of output: shorten the input or lower max_tokens"
            )
        if wanted is not None:
            return wanted
        return length - longest if ends else min(DEFAULT_MAX_TOKENS, length - longest)

    @property
    def answers_end(self) -> bool:
        return self.settings.core.mean_length is not None
