"""The driver of TabbyAPI, whose API is https://theroyallab.github.io/tabbyAPI/."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import EngineClient, LoadedModel, ServedModel
from enginehouse.errors import UpstreamError
from enginehouse_kit.drivers import LoadingDriver, read_json


class TabbyAPIDriver(LoadingDriver):
    """TabbyAPI, which has one model loaded at a time. With its admin key, the gateway loads and unloads models.

    With another key, or none, it serves the model that is loaded.
    """

    server = "TabbyAPI"
    answers_when_loaded = True
    health_path = "/health"

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The folders of models that the key may see. The context length is known of the loaded one only."""
        listed = read_json(await engine.request("GET", "/v1/models"), _Cards).data
        current = await _current(engine)
        return [
            ServedModel(card.id, current.known() if current and card.id == current.id else card.known())
            for card in listed
        ]

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        """The model of ``GET /v1/model``, which refuses to answer if there is none."""
        current = await _current(engine)
        return [LoadedModel(current.id)] if current else []

    async def load(self, engine: EngineClient, model: str) -> None:
        """``POST /v1/model/load``, which streams its progress and replaces the model that is loaded."""
        answer = await engine.request("POST", "/v1/model/load", msgspec.json.encode({"name": model}))
        if refusal := _refusal(answer.status, answer.body):
            raise self.load_failed(model, refusal)

    async def unload(self, engine: EngineClient, model: str) -> None:
        """``POST /v1/model/unload``, if ``model`` is the one that is loaded."""
        current = await _current(engine)
        if current is None or current.id != model:
            return
        answer = await engine.request("POST", "/v1/model/unload")
        if refusal := _refusal(answer.status, answer.body):
            raise self.unload_failed(model, refusal)


class _Parameters(msgspec.Struct):
    max_seq_len: int | None = None


class _Card(msgspec.Struct):
    id: str
    parameters: _Parameters | None = None

    def known(self) -> Capabilities:
        return Capabilities(context_length=self.parameters.max_seq_len if self.parameters else None)


class _Cards(msgspec.Struct):
    data: list[_Card]


class _Trouble(msgspec.Struct):
    message: str = ""


class _Said(msgspec.Struct):
    """An event of a load, or the answer to a request that is refused."""

    error: _Trouble | None = None
    detail: object = None


async def _current(engine: EngineClient) -> _Card | None:
    answer = await engine.request("GET", "/v1/model")
    if answer.status in (400, 503) and b"load" in answer.body:
        return None
    return read_json(answer, _Card)


def _refusal(status: int, body: bytes) -> str:
    """Why a load or an unload failed; empty if it did not. A load that began reports its failure in an event."""
    said = _Said()
    for line in body.splitlines():
        text = line.removeprefix(b"data:").strip()
        if text.startswith(b"{"):
            try:
                said = msgspec.json.decode(text, type=_Said)
            except msgspec.DecodeError:
                raise UpstreamError("TabbyAPI's answer cannot be decoded") from None
            if said.error is not None:
                return said.error.message or "it does not say why"
    return "" if status == 200 else str(said.detail or f"status {status}")
