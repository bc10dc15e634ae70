"""How to talk to ``llama-server``, with one model or as a router of several."""

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
    """``llama-server``: healthy once its model is loaded; its properties tell the context that a request may fill."""

    health_path = "/health"

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        """The launch line of a server with one GGUF file."""
        if not spec.path:
            return None
        context = ["-c", str(spec.context_length)] if spec.context_length else []
        where = ["--host", "127.0.0.1", "--port", str(spec.port)]
        return ["llama-server", "-m", spec.path, "--alias", spec.model, *where, "--metrics", *context]

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The models it lists; what a single one can do comes from ``/props`` first.

        A router's models are told by its list alone: asking for the properties of one would load it.
        """
        served = await super().models(engine)
        if len(served) != 1:
            return served
        [only] = served
        properties = read_json(await engine.request("GET", "/props"), _Properties)
        return [ServedModel(only.name, properties.capabilities().over(only.capabilities))]


class _Settings(msgspec.Struct):
    n_ctx: int = 0


class _Modalities(msgspec.Struct):
    vision: bool | None = None


class _Properties(msgspec.Struct):
    default_generation_settings: _Settings = msgspec.field(default_factory=_Settings)
    modalities: _Modalities = msgspec.field(default_factory=_Modalities)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            context_length=self.default_generation_settings.n_ctx or None, vision=self.modalities.vision
        )
