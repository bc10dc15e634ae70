"""The driver for the simulated engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import (
    Continuation,
    EngineClient,
    LaunchSpec,
    PartialAnswer,
    ServedModel,
    StreamTraits,
    SupportsContinuation,
    SupportsHandOver,
    SupportsLaunch,
    SupportsSleep,
    add_field,
)
from enginehouse.errors import CannotContinue
from enginehouse.rescheduling import InstanceMetadata, InstanceStatus
from enginehouse_kit.drivers import OpenAICompatibleDriver, continue_answer, read_json
from enginehouse_sim.options import SimOptions, engine_flags


class SimDriver(SupportsHandOver, OpenAICompatibleDriver, SupportsLaunch, SupportsSleep, SupportsContinuation):
    """The driver of the simulated engine, whose model list publishes the models' capabilities."""

    Options = SimOptions
    health_path = "/health"
    streams = StreamTraits(added=("token_ids",), withholds_stop=True, default_max_tokens=16, caches_prefixes=True)

    def command(self, spec: LaunchSpec) -> Sequence[str]:
        """Launch a simulated engine with one model; ``spec.path`` is ignored.

        The engine has a llumlet if there is a migrator for it and gRPC is installed.
        """
        where = ["--host", spec.bind, "--port", str(spec.port)]
        llumlet = ["--llumlet-port", "0"] if "llumlet" in spec.migrators and find_spec("grpc") else []
        line = [sys.executable, "-m", "enginehouse_sim", "--model", spec.model, *where, *engine_flags(spec)]
        return [*line, *llumlet]

    async def sleep(self, engine: EngineClient) -> bool:
        """Abort the engine's requests and drop its KV cache."""
        return (await engine.request("POST", "/sleep?level=1")).status == 200

    async def wake(self, engine: EngineClient) -> bool:
        return (await engine.request("POST", "/wake_up")).status == 200

    async def concurrency(self, engine: EngineClient) -> int | None:
        response = await engine.request("GET", "/server_info")
        return read_json(response, _ServerInfo).vllm_config.scheduler_config.max_num_seqs

    async def status(self, engine: EngineClient) -> InstanceStatus:
        return read_json(await engine.request("GET", "/instance_status"), InstanceStatus)

    async def metadata(self, engine: EngineClient) -> InstanceMetadata:
        return read_json(await engine.request("GET", "/instance_status"), InstanceMetadata)

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The listed models. Capabilities that the engine does not publish are unknown."""
        listed = read_json(await engine.request("GET", "/v1/models"), _SimModelList).data
        return [ServedModel(model.id, model.capabilities()) for model in listed]

    def continuable(self, path: str, body: bytes) -> bytes:
        return add_field(body, "return_token_ids", b"true")

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """Continue by token ids, as with vLLM, or by text without them.

        The default of a chat's ``max_tokens`` depends on the engine's settings, so such a chat cannot be continued.
        """
        if answer.path == "/v1/chat/completions" and not _limits(answer.body).known:
            raise CannotContinue("A chat without 'max_tokens' cannot be continued at a simulated engine")
        return continue_answer(answer, default_max_tokens=16, return_token_ids=True)

    def following(self, continuation: Continuation, request: str) -> Continuation:
        if not continuation.exact:
            raise CannotContinue("The simulated engine is asked for the rest of a stream by its tokens only")
        body = add_field(continuation.body, "follows", msgspec.json.encode(request))
        return msgspec.structs.replace(continuation, body=body)


class _Limits(msgspec.Struct):
    """The most tokens that a chat asks for."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None

    @property
    def known(self) -> bool:
        return bool(self.max_completion_tokens or self.max_tokens)


_limits = msgspec.json.Decoder(_Limits).decode


class _SimModel(msgspec.Struct):
    id: str
    max_model_len: int
    vision: bool | None = None
    tools: bool | None = None
    json_mode: bool | None = None
    parent: str | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities(
            context_length=self.max_model_len,
            vision=self.vision,
            tools=self.tools,
            json_mode=self.json_mode,
            parent=self.parent,
        )


class _SimModelList(msgspec.Struct):
    data: list[_SimModel]


class _SchedulerConfig(msgspec.Struct):
    max_num_seqs: int


class _VllmConfig(msgspec.Struct):
    scheduler_config: _SchedulerConfig


class _ServerInfo(msgspec.Struct):
    vllm_config: _VllmConfig
