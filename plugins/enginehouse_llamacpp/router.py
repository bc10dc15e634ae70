"""The driver of ``llama-server`` in router mode, which loads models on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import (
    EngineClient,
    EventClient,
    LaunchSpec,
    LoadedModel,
    LoadNews,
    ServedModel,
    ThinkingFields,
)
from enginehouse.errors import LoadFailed, NotEnoughMemory
from enginehouse_kit.drivers import LoadingDriver, read_json, read_model_list
from enginehouse_llamacpp.continuing import LlamaServerStreams
from enginehouse_llamacpp.options import THINKING

_ON_THE_WAY = ("loading", "downloading")
_KILLED = (9, -9, 137)
"""The exit codes of a model that the kernel killed for its memory."""


class LlamaCppRouterDriver(LoadingDriver, LlamaServerStreams):
    """llama.cpp's ``llama-server`` without a model of its own. The gateway loads and unloads its models.

    Start it with ``--no-models-autoload`` and ``--models-max 0``, so that it decides nothing itself. Its API:
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    """

    server = "The router"
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

    def thinking(self, spec: LaunchSpec | None) -> ThinkingFields:
        return THINKING

    async def load(self, engine: EngineClient, model: str) -> None:
        """Begin a load. ``loaded`` or ``load_problem`` tell how it ends."""
        refusal = await self.ask(engine, "/models/load", {"model": model})
        if refusal and "already running" not in refusal:
            raise self.load_failed(model, refusal)

    async def load_problem(self, engine: EngineClient, model: str) -> LoadFailed | None:
        """The end of the model's process, as the list reports it."""
        listed = read_json(await engine.request("GET", "/models"), _ModelList).data
        status = next((each.status for each in listed if each.id == model), None)
        if status is None:
            return self.load_failed(model, "it is no longer listed")
        if not status.failed:
            return None
        kind = NotEnoughMemory if status.exit_code in _KILLED else LoadFailed
        return kind(f"The router did not load '{model}': its process ended with status {status.exit_code}")

    async def follow_loads(self, engine: EventClient, on_news: Callable[[LoadNews], None]) -> None:
        """``GET /models/sse``, which routers have since June 2026."""

        def note(data: bytes) -> None:
            with suppress(msgspec.DecodeError):
                on_news(msgspec.json.decode(data, type=_Event).news())

        await engine.follow("/models/sse", note)

    async def unload(self, engine: EngineClient, model: str) -> None:
        refusal = await self.ask(engine, "/models/unload", {"model": model})
        if refusal and "not running" not in refusal:
            raise self.unload_failed(model, refusal)


class _Status(msgspec.Struct):
    value: str = "unloaded"
    failed: bool = False
    exit_code: int | None = None


class _Progress(msgspec.Struct):
    current: str = "model"
    value: float = 0.0


class _Change(msgspec.Struct):
    status: str = ""
    progress: _Progress | None = None


class _Event(msgspec.Struct):
    """An event of ``/models/sse``. Those about the whole list have no status."""

    model: str = ""
    event: str = ""
    data: _Change = msgspec.field(default_factory=_Change)

    def news(self) -> LoadNews:
        text, progress = self.data.status or self.event, self.data.progress
        if progress is not None:
            text += f" {progress.current}: {progress.value:.0%}"
        settled = self.data.status not in _ON_THE_WAY and self.event != "download_progress"
        return LoadNews(self.model, text, settled=settled)


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
