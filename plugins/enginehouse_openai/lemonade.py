"""The driver of Lemonade servers, whose API is https://lemonade-server.ai/docs/api/lemonade/."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import EngineClient, LoadedModel, ServedModel
from enginehouse_kit.drivers import LoadingDriver, read_json


class LemonadeDriver(LoadingDriver):
    """Lemonade. The gateway loads its models and unloads them."""

    server = "Lemonade"
    answers_when_loaded = True
    health_path = "/v1/health"
    endpoints = ("/v1/responses",)

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The downloaded models. Lemonade passes requests for those of the recipe ``cloud`` on."""
        listed = read_json(await engine.request("GET", "/v1/models"), _Models).data
        return [
            ServedModel(model.id, model.known(), int(model.size * 1e9) if model.size else None, model.recipe == "cloud")
            for model in listed
            if model.downloaded is not False
        ]

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        """The models that ``GET /v1/health`` lists. Lemonade does not say how much memory one takes."""
        health = read_json(await engine.request("GET", "/v1/health"), _Health)
        return [LoadedModel(model.model_name) for model in health.all_models_loaded]

    async def load(self, engine: EngineClient, model: str) -> None:
        """``POST /v1/load``, which answers when the model is loaded."""
        if refusal := await _refusal(engine, "/v1/load", model):
            raise self.load_failed(model, refusal)

    async def unload(self, engine: EngineClient, model: str) -> None:
        """``POST /v1/unload``. One that somebody else has unloaded is not found."""
        refusal = await _refusal(engine, "/v1/unload", model)
        if refusal and model in {each.name for each in await self.loaded(engine)}:
            raise self.unload_failed(model, refusal)


class _Model(msgspec.Struct):
    """A model of the list. ``size`` is in GB."""

    id: str
    size: float | None = None
    recipe: str = ""
    downloaded: bool | None = None
    labels: list[str] = []
    max_context_window: int | None = None

    def known(self) -> Capabilities:
        return Capabilities(
            context_length=self.max_context_window or None,
            vision="vision" in self.labels,
            tools=True if "tool-calling" in self.labels else None,
            embeddings="embeddings" in self.labels,
        )


class _Models(msgspec.Struct):
    data: list[_Model]


class _Loaded(msgspec.Struct):
    model_name: str


class _Health(msgspec.Struct):
    all_models_loaded: list[_Loaded]


class _Said(msgspec.Struct):
    """The answer to a load: ``error`` is a text, or an object with a ``message``."""

    status: str = ""
    message: str = ""
    error: str | dict[str, object] = ""

    def reason(self) -> str:
        error = self.error.get("message") if isinstance(self.error, dict) else self.error
        return self.message or str(error or "")


async def _refusal(engine: EngineClient, path: str, model: str) -> str:
    """Why the server does not do it, from an answer with any status; empty if it does."""
    answer = await engine.request("POST", path, msgspec.json.encode({"model_name": model}))
    try:
        said = msgspec.json.decode(answer.body, type=_Said)
    except msgspec.DecodeError:
        said = _Said()
    if answer.status == 200 and said.status != "error":
        return ""
    return said.reason() or f"status {answer.status}"
