"""The driver of Ollama servers, whose API is https://github.com/ollama/ollama/blob/main/docs/api.md."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import EngineClient, LoadedModel, ServedModel
from enginehouse_kit.drivers import LoadingDriver, read_json

_FOR_EVER = -1
"""With this ``keep_alive``, Ollama never unloads a model: the gateway does."""
_ONLY_EMBEDS = "does not support generate"


class OllamaDriver(LoadingDriver):
    """Ollama. The gateway loads its models with an empty request, and unloads them."""

    server = "Ollama"
    answers_when_loaded = True
    health_path = "/api/version"

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The pulled models. The context length of one that is not loaded is unknown, because Ollama chooses it."""
        pulled = read_json(await engine.request("GET", "/api/tags"), _Tags).models
        lengths = {model.name: model.context_length for model in await _running(engine)}
        abilities = await asyncio.gather(*(_abilities(engine, model.name) for model in pulled))
        return [
            model.served(_capabilities(able, lengths.get(model.name)))
            for model, able in zip(pulled, abilities, strict=True)
        ]

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        """The models that ``GET /api/ps`` lists. ``size`` is all memory of one, ``size_vram`` its part on the GPU."""
        return [LoadedModel(model.name, model.size or None) for model in await _running(engine)]

    def full_name(self, model: str) -> str:
        """A name without a tag means the tag ``latest``."""
        return model if ":" in model.rpartition("/")[2] else f"{model}:latest"

    async def load(self, engine: EngineClient, model: str) -> None:
        """Ask for an empty completion, or for an empty embedding of a model that only embeds."""
        refusal = await self.ask(engine, "/api/generate", {"model": model, "keep_alive": _FOR_EVER, "stream": False})
        if _ONLY_EMBEDS in refusal:
            refusal = await self.ask(engine, "/api/embed", {"model": model, "input": "", "keep_alive": _FOR_EVER})
        if refusal:
            raise self.load_failed(model, refusal)

    async def unload(self, engine: EngineClient, model: str) -> None:
        """Ask for an empty completion with ``keep_alive`` 0, which also unloads a model that only embeds."""
        if refusal := await self.ask(engine, "/api/generate", {"model": model, "keep_alive": 0, "stream": False}):
            raise self.unload_failed(model, refusal)


class _Pulled(msgspec.Struct):
    """A model of the list. Ollama passes requests for one with a ``remote_host`` on, and never lists it as running."""

    name: str
    size: int = 0
    remote_host: str = ""

    def served(self, capabilities: Capabilities) -> ServedModel:
        proxied = bool(self.remote_host)
        return ServedModel(self.name, capabilities, None if proxied else self.size, proxied)


class _Tags(msgspec.Struct):
    models: list[_Pulled]


class _Running(msgspec.Struct):
    name: str
    size: int = 0
    context_length: int | None = None


class _Processes(msgspec.Struct):
    models: list[_Running]


class _Shown(msgspec.Struct):
    capabilities: list[str] | None = None


async def _running(engine: EngineClient) -> list[_Running]:
    return read_json(await engine.request("GET", "/api/ps"), _Processes).models


async def _abilities(engine: EngineClient, model: str) -> list[str] | None:
    """The model's capabilities; ``None`` if the server does not list them, as before version 0.6.4."""
    response = await engine.request("POST", "/api/show", msgspec.json.encode({"model": model}))
    return read_json(response, _Shown).capabilities if response.status == 200 else None


def _capabilities(able: list[str] | None, context_length: int | None) -> Capabilities:
    if able is None:
        return Capabilities(context_length=context_length)
    return Capabilities(
        context_length=context_length, vision="vision" in able, tools="tools" in able, embeddings="embedding" in able
    )
