"""The driver of ``llama-server``, with one model or in router mode."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import (
    Capabilities,
    EngineClient,
    LaunchSpec,
    OpenAICompatibleDriver,
    ServedModel,
    read_json,
)


class LlamaCppDriver(OpenAICompatibleDriver):
    """llama.cpp's ``llama-server``. It is healthy when its model is loaded; ``/props`` has the context per request."""

    health_path = "/health"

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        if not spec.path:
            return None
        context = ["-c", str(spec.context_length)] if spec.context_length else []
        where = ["--host", "127.0.0.1", "--port", str(spec.port)]
        return ["llama-server", "-m", spec.path, "--alias", spec.model, *where, "--metrics", *context]

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The listed models. For a single model, ``/props`` takes precedence over the list.

        In router mode the list alone counts, because asking for the properties of a model loads it.
        """
        served = await super().models(engine)
        if len(served) != 1:
            return served
        [only] = served
        properties = read_json(await engine.request("GET", "/props"), _Properties)
        return [ServedModel(only.name, properties.capabilities().over(only.capabilities))]

    async def concurrency(self, engine: EngineClient) -> int | None:
        """The number of slots in ``/props``. A router reports none."""
        response = await engine.request("GET", "/props")
        return (read_json(response, _Properties).total_slots or None) if response.status == 200 else None


class _Settings(msgspec.Struct):
    n_ctx: int = 0


class _Modalities(msgspec.Struct):
    vision: bool | None = None


class _Properties(msgspec.Struct):
    default_generation_settings: _Settings = msgspec.field(default_factory=_Settings)
    modalities: _Modalities = msgspec.field(default_factory=_Modalities)
    total_slots: int = 0

    def capabilities(self) -> Capabilities:
        return Capabilities(
            context_length=self.default_generation_settings.n_ctx or None, vision=self.modalities.vision
        )
