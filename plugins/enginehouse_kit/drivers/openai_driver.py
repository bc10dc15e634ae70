"""A base class for drivers of OpenAI-compatible engines, and the lists of models that these send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

import msgspec

from enginehouse import Capabilities, ConfigError, Driver
from enginehouse.drivers import (
    EngineClient,
    EngineResponse,
    ServedModel,
    SupportsCacheEvents,
    SupportsFigures,
)
from enginehouse.engine_caches import CacheFollower, KvEventSettings, PromptTokens
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.block_events import CacheEvent
from enginehouse_kit.drivers.continuing import prompt_tokens, read_json


class OpenAICompatibleDriver(Driver, SupportsFigures, SupportsCacheEvents):
    """Queries health and models in the way that every OpenAI-compatible server supports.

    The events of prefix caches are those of vLLM, which other engines publish too.
    """

    health_path: ClassVar[str] = "/v1/models"
    """The path that answers 200 if and only if the engine can serve requests."""

    async def healthy(self, engine: EngineClient) -> bool:
        """Whether ``health_path`` answers 200."""
        return (await engine.request("GET", self.health_path)).status == 200

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The models that ``GET /v1/models`` lists. Raises ``UpstreamError`` for any other answer."""
        return read_model_list(await engine.request("GET", "/v1/models"))

    async def serves(self, engine: EngineClient, model: str) -> bool | None:
        """Ask for one token of a chat. An answer below 500 says nothing: the model may not be one for chats."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        status = (await engine.request("POST", "/v1/chat/completions", msgspec.json.encode(body))).status
        return True if status == 200 else False if status >= 500 and status != 501 else None

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """``GET /instance_status``, which has Llumnix's names. ``None`` for an engine without that page."""
        response = await engine.request("GET", "/instance_status")
        return None if response.status in (404, 405, 501) else read_json(response, InstanceStatus)

    def check_cache_events(self, settings: KvEventSettings) -> None:
        """Refuse ranks that publish at files, and a machine without ``pyzmq``."""
        if settings.ranks > 1 and not settings.endpoint.startswith("tcp:"):
            raise ConfigError("ranks have TCP ports of their own", remedy="give a tcp: endpoint")
        if find_spec("zmq") is None:
            raise ConfigError("needs the package pyzmq", remedy="pip install 'enginehouse[kv-events]'")

    def follow_cache(
        self, backend: str, settings: KvEventSettings, on_events: Callable[[Sequence[CacheEvent]], None]
    ) -> CacheFollower:
        """Follow the engine's ZeroMQ sockets."""
        from enginehouse_kit.cache_events import RankedFollower  # few gateways follow caches

        return RankedFollower(backend, settings, on_events)

    async def tokenize(self, engine: EngineClient, model: str, body: bytes) -> PromptTokens | None:
        """Ask ``POST /tokenize``."""
        return await prompt_tokens(engine, model, body)


def read_model_list(response: EngineResponse) -> Sequence[ServedModel]:
    """Read an OpenAI model list, with the capabilities that some engines add to the entries.

    The context length comes from ``max_model_len`` (vLLM, SGLang), ``context_length`` (OpenRouter) or ``meta``
    (llama.cpp), vision from ``architecture.input_modalities``, the base model of an adapter from ``parent``. Ignores
    entries without an ``id``. Raises ``UpstreamError`` if the response is not a model list.
    """
    entries = read_json(response, _ModelListBody).data
    return [ServedModel(entry["id"], _capabilities(entry)) for entry in entries if isinstance(entry.get("id"), str)]


class _ModelListBody(msgspec.Struct):
    data: list[dict[str, Any]]


def _capabilities(entry: Mapping[str, Any]) -> Capabilities:
    meta = _table(entry.get("meta"))
    lengths = (entry.get("max_model_len"), entry.get("context_length"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    modalities = _table(entry.get("architecture")).get("input_modalities")
    return Capabilities(
        context_length=next((length for length in lengths if _is_length(length)), None),
        vision="image" in modalities if isinstance(modalities, list) else None,
        parent=parent if isinstance(parent := entry.get("parent"), str) and parent else None,
    )


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
