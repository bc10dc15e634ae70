"""OpenAI's requests that come to other paths: Azure's, those of older clients, and Cohere's for ranks."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from enginehouse import InvalidRequest
from enginehouse_kit.protocols import Envelope, Forwarded, Protocol, ProtocolRequest

_ENDPOINTS: Final = ("chat/completions", "completions", "embeddings", "images/generations", "audio/speech")
"""Those with longer names first: a model may have slashes in its name."""
_BEFORE_MODEL: Final = ("/openai/deployments/", "/v1/engines/")
_RANKS: Final = "/v2/rerank"
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class OpenAIPaths(Protocol):
    """Forwards requests to the path that all engines have. A model in the path takes the place of that in the body."""

    name: ClassVar[str] = "openai_paths"
    paths = (
        _RANKS,
        *(f"{before}{{model:path}}/{endpoint}" for before in _BEFORE_MODEL for endpoint in _ENDPOINTS),
        *(f"/openai/v1/{endpoint}" for endpoint in _ENDPOINTS),
    )

    def translate(self, request: ProtocolRequest) -> Forwarded:
        if request.path == _RANKS:
            return Forwarded("/v1/rerank", request.body)
        before = next((each for each in _BEFORE_MODEL if request.path.startswith(each)), None)
        if before is None:
            return Forwarded(request.path.removeprefix("/openai"), request.body)
        rest = request.path.removeprefix(before)
        endpoint = next(each for each in _ENDPOINTS if rest.endswith(f"/{each}"))
        return Forwarded(f"/v1/{endpoint}", _for_model(rest.removesuffix(f"/{endpoint}"), request.body))

    def error(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode(envelope)


def _for_model(model: str, body: bytes) -> bytes:
    try:
        fields: dict[str, Any] = _fields(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The request body is not a JSON object: {error}") from None
    return msgspec.json.encode(fields | {"model": model})
