"""The driver of LiteLLM's proxy, whose API is https://docs.litellm.ai/docs/proxy/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import EngineClient, ServedModel
from enginehouse_kit.drivers import OpenAICompatibleDriver, read_json


class LiteLLMDriver(OpenAICompatibleDriver):
    """LiteLLM's proxy. Its health does not depend on a key, and its list says what models can do."""

    health_path = "/health/readiness"
    endpoints = ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses")

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """``GET /v1/model/info`` with what all deployments of a model can do; without access to it, the plain list.

        Names with ``*`` are patterns, not models.
        """
        answer = await engine.request("GET", "/v1/model/info")
        if answer.status in (401, 403, 404, 405):
            return await super().models(engine)
        deployments: dict[str, list[_Info]] = {}
        for each in read_json(answer, _Infos).data:
            if "*" not in each.model_name:
                deployments.setdefault(each.model_name, []).append(each.model_info)
        return [ServedModel(name, _common(infos)) for name, infos in deployments.items()]


class _Info(msgspec.Struct):
    """What LiteLLM knows of a deployment; ``None`` is unknown."""

    mode: str | None = None
    max_input_tokens: int | None = None
    supports_vision: bool | None = None
    supports_function_calling: bool | None = None
    supports_response_schema: bool | None = None


class _Deployment(msgspec.Struct):
    model_name: str
    model_info: _Info = msgspec.field(default_factory=_Info)


class _Infos(msgspec.Struct):
    data: list[_Deployment]


def _common(infos: Sequence[_Info]) -> Capabilities:
    """What every deployment can do. LiteLLM chooses one of them itself."""
    lengths = [info.max_input_tokens for info in infos if info.max_input_tokens]
    return Capabilities(
        context_length=min(lengths) if lengths else None,
        vision=_all(info.supports_vision for info in infos),
        tools=_all(info.supports_function_calling for info in infos),
        json_mode=_all(info.supports_response_schema for info in infos) or None,  # without schemas, it may have JSON
        embeddings=_all(None if info.mode is None else info.mode == "embedding" for info in infos),
    )


def _all(known: Iterable[bool | None]) -> bool | None:
    """Whether all are true; ``None`` if one of them is unknown and none is false."""
    values = set(known)
    return False if False in values else None if None in values else True
