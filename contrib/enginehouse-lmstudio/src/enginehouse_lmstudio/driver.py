"""The driver of LM Studio servers, whose API is https://lmstudio.ai/docs/developer/rest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import EngineClient, LoadedModel, ServedModel
from enginehouse_kit.drivers import LoadingDriver, read_json


class LMStudioDriver(LoadingDriver):
    """LM Studio 0.4 or later, whose API can load and unload. Its own just-in-time loading must be off."""

    server = "LM Studio"
    answers_when_loaded = True

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """All downloaded models, by their ``key``."""
        return [ServedModel(model.key, model.known(), model.size_bytes) for model in await _list(engine)]

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        """The models with a loaded instance. LM Studio does not say how much memory one takes."""
        return [LoadedModel(model.key) for model in await _list(engine) if model.loaded_instances]

    async def load(self, engine: EngineClient, model: str) -> None:
        """``POST /api/v1/models/load``, which answers when the model is loaded."""
        if refusal := await self.ask(engine, "/api/v1/models/load", {"model": model}):
            raise self.load_failed(model, refusal)

    async def unload(self, engine: EngineClient, model: str) -> None:
        """Unload every instance of the model."""
        for each in await _list(engine):
            for instance in each.loaded_instances if each.key == model else ():
                if refusal := await self.ask(engine, "/api/v1/models/unload", {"instance_id": instance.id}):
                    raise self.unload_failed(model, refusal)


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
        """Tools are unknown for a model that was not trained for them, because LM Studio then uses its own prompt."""
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
