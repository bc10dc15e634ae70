"""The driver of ``llama-server`` in router mode, which loads models on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from enginehouse import (
    Capabilities,
    EngineClient,
    LoadedModel,
    LoadFailed,
    LoadingDriver,
    NotEnoughMemory,
    ServedModel,
    read_json,
    read_model_list,
)
from enginehouse_llamacpp.continuing import LlamaServerStreams

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_KILLED = (9, -9, 137)
"""The exit codes of a model that the kernel killed for its memory."""


class LlamaCppRouterDriver(LoadingDriver, LlamaServerStreams):
    """llama.cpp's ``llama-server`` without a model of its own. The gateway loads and unloads its models.

    Start it with ``--no-models-autoload`` and ``--models-max 0``, so that it decides nothing itself. Its API:
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    """

    server = "The router"
    answers_when_loaded = True
    health_path = "/health"
    metrics_path = "/metrics?model={model}"
    endpoints = ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses")

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """All models of the folder, with the router's report on each; it has more facts about loaded ones."""
        response = await engine.request("GET", "/models")
        modalities = {model.id: model.capabilities() for model in read_json(response, _ModelList).data}
        return [
            ServedModel(model.name, model.capabilities.over(modalities.get(model.name, Capabilities())))
            for model in read_model_list(response)
        ]

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        listed = read_json(await engine.request("GET", "/models"), _ModelList).data
        return [LoadedModel(model.id) for model in listed if model.status.value in ("loaded", "sleeping")]

    async def load(self, engine: EngineClient, model: str) -> None:
        """Load a model and wait until the router says that it is loaded, or has failed."""
        refusal = await self.ask(engine, "/models/load", {"model": model})
        if refusal and "already running" not in refusal:
            raise self.load_failed(model, refusal)
        pause = _FIRST_PAUSE_S
        while (status := await self._status_of(engine, model)).value != "loaded":
            if status.failed:
                kind = NotEnoughMemory if status.exit_code in _KILLED else LoadFailed
                raise kind(f"The router did not load '{model}': its process ended with status {status.exit_code}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def unload(self, engine: EngineClient, model: str) -> None:
        refusal = await self.ask(engine, "/models/unload", {"model": model})
        if refusal and "not running" not in refusal:
            raise self.unload_failed(model, refusal)

    async def _status_of(self, engine: EngineClient, model: str) -> _Status:
        listed = read_json(await engine.request("GET", "/models"), _ModelList).data
        found = next((each.status for each in listed if each.id == model), None)
        if found is None:
            raise self.load_failed(model, "it is no longer listed")
        return found


class _Status(msgspec.Struct):
    value: str = "unloaded"
    failed: bool = False
    exit_code: int | None = None


class _Architecture(msgspec.Struct):
    input_modalities: list[str] = []
    output_modalities: list[str] = []


class _Model(msgspec.Struct):
    id: str
    status: _Status = msgspec.field(default_factory=_Status)
    architecture: _Architecture | None = None

    def capabilities(self) -> Capabilities:
        if self.architecture is None:
            return Capabilities()
        embeddings = True if "embeddings" in self.architecture.output_modalities else None
        return Capabilities(vision="image" in self.architecture.input_modalities, embeddings=embeddings)


class _ModelList(msgspec.Struct):
    data: list[_Model]
