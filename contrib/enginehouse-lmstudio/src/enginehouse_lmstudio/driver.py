"""The driver of LM Studio servers. Their API: https://lmstudio.ai/docs/developer/rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse import (
    Capabilities,
    EngineClient,
    EngineResponse,
    InstanceStatus,
    LoadedModel,
    LoadFailed,
    NotEnoughMemory,
    OpenAICompatibleDriver,
    ServedModel,
    read_json,
)

_NO_MEMORY = re.compile(r"insufficient system resources|out of memory|not enough memory|insufficient memory", re.I)


class LMStudioDriver(OpenAICompatibleDriver):
    """LM Studio 0.4 or later, whose API can load and unload. Switch its own just-in-time loading off."""

    loads_models = True

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """All downloaded models, by their ``key``."""
        return [ServedModel(model.key, model.known(), model.size_bytes) for model in await _list(engine)]

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        """The models with a loaded instance. LM Studio does not say how much memory one takes."""
        return [LoadedModel(model.key) for model in await _list(engine) if model.loaded_instances]

    async def load(self, engine: EngineClient, model: str) -> None:
        """``POST /api/v1/models/load``, which answers when the model is loaded."""
        response = await _ask(engine, "/api/v1/models/load", {"model": model})
        if response.status != 200:
            why = _error(response)
            kind = NotEnoughMemory if _NO_MEMORY.search(why) else LoadFailed
            raise kind(f"LM Studio did not load '{model}': {why}")

    async def unload(self, engine: EngineClient, model: str) -> None:
        """Unload every instance of the model."""
        for each in await _list(engine):
            for instance in each.loaded_instances if each.key == model else ():
                response = await _ask(engine, "/api/v1/models/unload", {"instance_id": instance.id})
                if response.status != 200:
                    raise LoadFailed(f"LM Studio did not unload '{model}': {_error(response)}")

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """None: LM Studio does not report its load."""
        return None


class _InstanceConfig(msgspec.Struct):
    context_length: int | None = None


class _Instance(msgspec.Struct):
    id: str
    config: _InstanceConfig = msgspec.field(default_factory=_InstanceConfig)


class _Abilities(msgspec.Struct):
    vision: bool | None = None
    trained_for_tool_use: bool | None = None


class _Model(msgspec.Struct):
    key: str
    type: str = "llm"
    size_bytes: int | None = None
    max_context_length: int | None = None
    loaded_instances: list[_Instance] = []
    capabilities: _Abilities | None = None

    def known(self) -> Capabilities:
        """Tools are unknown for a model that was not trained for them: LM Studio has a way of its own for these."""
        lengths = [each.config.context_length for each in self.loaded_instances if each.config.context_length]
        able = self.capabilities or _Abilities()
        return Capabilities(
            context_length=min(lengths) if lengths else self.max_context_length,
            vision=able.vision,
            tools=True if able.trained_for_tool_use else None,
            embeddings=self.type == "embedding",
        )


class _ModelList(msgspec.Struct):
    models: list[_Model]


async def _list(engine: EngineClient) -> list[_Model]:
    return read_json(await engine.request("GET", "/api/v1/models"), _ModelList).models


async def _ask(engine: EngineClient, path: str, body: dict[str, Any]) -> EngineResponse:
    return await engine.request("POST", path, msgspec.json.encode(body))


def _error(response: EngineResponse) -> str:
    """The message of an error, which is a text or an object with one."""
    try:
        error = msgspec.json.decode(response.body, type=dict[str, Any]).get("error")
    except msgspec.DecodeError:
        error = None
    text = error.get("message") if isinstance(error, dict) else error
    return str(text) if text else f"status {response.status}"
