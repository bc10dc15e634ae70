"""The driver of ``llama-server`` in router mode, which loads models on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from enginehouse import (
    Capabilities,
    EngineClient,
    InstanceStatus,
    LoadedModel,
    LoadFailed,
    NotEnoughMemory,
    OpenAICompatibleDriver,
    ServedModel,
    read_json,
    read_model_list,
)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_KILLED = (9, -9, 137)
"""The exit codes of a model that the kernel killed for its memory."""


class LlamaCppRouterDriver(OpenAICompatibleDriver):
    """llama.cpp's ``llama-server`` without a model of its own. The gateway loads and unloads its models.

    Start it with ``--no-models-autoload`` and ``--models-max 0``, so that it decides nothing itself. Its API:
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    """

    loads_models = True
    health_path = "/health"

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """All models of the folder, with what the router tells of each; more of those that are loaded."""
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
        answer = await _post(engine, "/models/load", model)
        if answer and "already running" not in answer:
            raise LoadFailed(f"Model '{model}' did not load: the router says: {answer}")
        pause = _FIRST_PAUSE_S
        while (status := await _status(engine, model)).value != "loaded":
            if status.failed:
                kind = NotEnoughMemory if status.exit_code in _KILLED else LoadFailed
                raise kind(f"Model '{model}' did not load: its process ended with status {status.exit_code}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def unload(self, engine: EngineClient, model: str) -> None:
        answer = await _post(engine, "/models/unload", model)
        if answer and "not running" not in answer:
            raise LoadFailed(f"Model '{model}' did not unload: the router says: {answer}")

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """None: a router has figures of single models only."""
        return None


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


class _Error(msgspec.Struct):
    message: str = ""


class _Failure(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


async def _post(engine: EngineClient, path: str, model: str) -> str:
    """What the router has against it; empty if it agrees."""
    response = await engine.request("POST", path, msgspec.json.encode({"model": model}))
    if response.status == 200:
        return ""
    try:
        return msgspec.json.decode(response.body, type=_Failure).error.message or f"status {response.status}"
    except msgspec.DecodeError:
        return f"status {response.status}"


async def _status(engine: EngineClient, model: str) -> _Status:
    listed = read_json(await engine.request("GET", "/models"), _ModelList).data
    found = next((each.status for each in listed if each.id == model), None)
    if found is None:
        raise LoadFailed(f"Model '{model}' did not load: the router no longer lists it")
    return found
