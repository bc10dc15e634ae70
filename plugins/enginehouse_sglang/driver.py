"""The driver of SGLang servers. Their API: https://docs.sglang.io/basic_usage/native_api.html."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from enginehouse import Capabilities, Role
from enginehouse.drivers import (
    Continuation,
    EngineClient,
    EngineResponse,
    FoundModel,
    LaunchSpec,
    ModelFacts,
    PartialAnswer,
    ServedModel,
    StreamTraits,
    SupportsBootstrap,
    SupportsContinuation,
    SupportsLaunch,
    SupportsSleep,
    add_field,
)
from enginehouse.errors import CannotContinue, UpstreamError
from enginehouse.rescheduling import InstanceStatus
from enginehouse.routing_facts import UNKNOWN
from enginehouse_kit.drivers import (
    OpenAICompatibleDriver,
    continue_answer,
    continue_ids,
    continue_text,
    fill_in_tokens,
    find_model_folders,
    missing_folder,
    model_folder_name,
    option_arguments,
    read_json,
    read_model_folder,
)
from enginehouse_sglang.options import SglangOptions
from enginehouse_sglang.status import read_status

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_CHAT = "/v1/chat/completions"
_TRIES, _PAUSE_S = 200, 0.05
_BUSY = 400
"""The answer to ``/flush_cache`` while requests run: https://docs.sglang.io/basic_usage/native_api.html."""
_FOR_SLEEP = ("--enable-memory-saver", "--enable-weights-cpu-backup")
"""Without the second flag, an engine wakes with weights of any value."""
_MODE = "--disaggregation-mode"
_ROOMS = 1 << 62
"""A batch of prompts takes as many rooms from the first one on, below 2^63."""


class SglangDriver(OpenAICompatibleDriver, SupportsLaunch, SupportsSleep, SupportsContinuation, SupportsBootstrap):
    """SGLang's server. Its model list has the context length, ``/model_info`` the other capabilities."""

    Options = SglangOptions
    how_to_install = "`pip install sglang`, or set command to the python that has it"
    health_path = "/health"
    endpoints = ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses")
    streams = StreamTraits(added=("token_ids",), default_max_tokens=16, caches_prefixes=True)

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        if not spec.path:
            return None
        context = ["--context-length", str(spec.context_length)] if spec.context_length else []
        where = ["--host", spec.bind, "--port", str(spec.port)]
        if spec.nodes > 1:
            where += ["--nnodes", str(spec.nodes), "--node-rank", str(spec.node_rank)]
            where += ["--dist-init-addr", spec.meet_at]
        model = ["--model-path", spec.path, "--served-model-name", spec.model]
        options = option_arguments(spec.options_as(SglangOptions), switches=SglangOptions.__struct_fields__)
        saver = [flag for flag in _FOR_SLEEP if spec.sleep and flag not in options]
        mode = [] if spec.role is Role.NEUTRAL or _MODE in options else [_MODE, spec.role.value]
        line = ["python", "-m", "sglang.launch_server", *model, *where, *context, *saver, *mode, *options]
        is_one = (spec.options_as(SglangOptions).dp_size or 1) == 1  # several ranks publish over TCP only
        return [*line, "--kv-events-config", spec.kv_events] if spec.kv_events and is_one else line

    def why_not(self, spec: LaunchSpec) -> str:
        return missing_folder(spec.path)

    def find_models(self, path: Path) -> Sequence[FoundModel]:
        """Folders of Hugging Face models."""
        return [FoundModel(name=model_folder_name(folder), path=str(folder)) for folder in find_model_folders(path)]

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        return ModelFacts(capabilities=read_model_folder(spec.path))

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The listed models, each with the capabilities of the loaded one."""
        served = await super().models(engine)
        known = await self._model_information(engine)
        return [ServedModel(model.name, model.capabilities.over(known)) for model in served]

    async def concurrency(self, engine: EngineClient) -> int | None:
        """The requests that all data-parallel ranks run at once, from ``/server_info``."""
        response = await _first(engine, "/server_info", "/get_server_info")
        if response.status != 200:
            return None
        limits = [state.limit for state in read_json(response, _ServerInformation).internal_states]
        return sum(limit for limit in limits if limit) or None

    async def priority_order(self, engine: EngineClient, spec: LaunchSpec | None = None) -> int:
        """1 with ``--enable-priority-scheduling``, and -1 with ``--schedule-low-priority-values-first`` besides."""
        response = await _first(engine, "/server_info", "/get_server_info")
        if response.status != 200:
            return 0
        known = read_json(response, _ServerInformation)
        if not known.enable_priority_scheduling:
            return 0
        return -1 if known.schedule_low_priority_values_first else 1

    async def bootstrap_port(self, engine: EngineClient) -> int | None:
        """From ``/server_info``; ``None`` for a server that does not tell it: the other one then takes its own."""
        response = await _first(engine, "/server_info", "/get_server_info")
        if response.status != 200:
            raise UpstreamError(f"/server_info was answered {response.status}")
        known = read_json(response, _ServerInformation)
        if known.disaggregation_mode not in (None, "prefill"):
            raise UpstreamError(f"its role is prefill, but it runs with {_MODE} {known.disaggregation_mode}")
        return known.disaggregation_bootstrap_port

    def bootstrap(self, body: bytes, host: str, port: int | None) -> bytes:
        """As SGLang's router does: the prefill server's host and port, and a room of the request's own.

        https://github.com/sgl-project/sglang/blob/main/sgl-model-gateway/src/routers/http/pd_router.rs
        """
        fields = {
            "bootstrap_host": f"[{host}]" if ":" in host else host,
            "bootstrap_port": port,
            "bootstrap_room": secrets.randbelow(_ROOMS),
        }
        return msgspec.json.encode({**_fields(body), **fields})

    async def sleep(self, engine: EngineClient) -> bool:
        """Release the memory of weights and KV cache. A server without ``--enable-memory-saver`` agrees and keeps it.

        A server that still works for a client who has left would crash, so its requests are aborted first.
        """
        await engine.request("POST", "/abort_request", b'{"abort_all": true}')
        for _ in range(_TRIES):
            flushed = await engine.request("POST", "/flush_cache")
            if flushed.status != _BUSY:
                break
            await asyncio.sleep(_PAUSE_S)
        if flushed.status != 200:
            return False
        return (await engine.request("POST", "/release_memory_occupation", b"{}")).status == 200

    async def wake(self, engine: EngineClient) -> bool:
        return (await engine.request("POST", "/resume_memory_occupation", b"{}")).status == 200

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """From ``/metrics``; ``None`` for a server that was started without ``--enable-metrics``."""
        response = await engine.request("GET", "/metrics")
        return None if response.status == 404 else read_status(response)

    async def _model_information(self, engine: EngineClient) -> Capabilities:
        response = await _first(engine, "/model_info", "/get_model_info")
        return read_json(response, _ModelInformation).capabilities() if response.status == 200 else UNKNOWN

    def continuable(self, path: str, body: bytes) -> bytes:
        """Ask completions for their tokens, which older servers ignore. A chat that streams is refused with the field:
        https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/entrypoints/openai/serving_chat.py.
        """
        return body if path == _CHAT else add_field(body, "return_token_ids", b"true")

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Let the engine count the tokens of a text that came without them, and tokenize the prompt."""
        return await fill_in_tokens(engine, answer)

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """By token ids if the whole answer has a limit, which ``/v1/completions`` needs; else by text."""
        if answer.path != _CHAT:
            return continue_answer(answer, default_max_tokens=16, return_token_ids=True)
        try:
            if b"_tokens" in answer.body:
                return continue_ids(answer, return_token_ids=True)
        except CannotContinue:
            pass
        return continue_text(answer)


async def _first(engine: EngineClient, *paths: str) -> EngineResponse:
    """The first answer that is 200, else the last one. Older servers know only the last path."""
    for path in paths:
        response = await engine.request("GET", path)
        if response.status == 200:
            break
    return response


class _InternalState(msgspec.Struct, rename={"limit": "effective_max_running_requests_per_dp"}):
    limit: int | None = None


class _ServerInformation(msgspec.Struct):
    internal_states: list[_InternalState] = []
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    disaggregation_mode: str | None = None
    disaggregation_bootstrap_port: int | None = None


class _ModelInformation(msgspec.Struct):
    is_generation: bool | None = None
    has_image_understanding: bool | None = None

    def capabilities(self) -> Capabilities:
        embeddings = None if self.is_generation is None else not self.is_generation
        return Capabilities(vision=self.has_image_understanding, embeddings=embeddings)
