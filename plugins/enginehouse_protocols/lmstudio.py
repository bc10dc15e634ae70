"""LM Studio's own endpoints: OpenAI's under other paths, and its list of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from enginehouse.errors import ModelNotFound
from enginehouse_kit.protocols import Envelope, Forwarded, Protocol, ProtocolRequest

_OWN: Final = "/api/v0/"
_MODELS: Final = "/api/v0/models"


class LMStudio(Protocol):
    """The protocol of https://lmstudio.ai/docs/developer/rest/endpoints."""

    name: ClassVar[str] = "lmstudio"
    paths = ("/api/v0/chat/completions", "/api/v0/completions", "/api/v0/embeddings")
    pages = (("GET", _MODELS), ("GET", f"{_MODELS}/{{id:path}}"))

    def translate(self, request: ProtocolRequest) -> Forwarded:
        return Forwarded(f"/v1/{request.path.removeprefix(_OWN)}", request.body)

    def error(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode(envelope)

    def page(self, method: str, path: str, body: bytes, models: Sequence[Mapping[str, Any]]) -> bytes:
        entries = [_entry(card) for card in models]
        if path == _MODELS:
            return msgspec.json.encode({"object": "list", "data": entries})
        wanted = path.removeprefix(f"{_MODELS}/")
        found = next((entry for entry in entries if entry["id"] == wanted), None)
        if found is None:
            raise ModelNotFound(wanted)
        return msgspec.json.encode(found)


def _entry(card: Mapping[str, Any]) -> dict[str, Any]:
    known = card.get("capabilities", {})
    kind = "vlm" if known.get("vision") else "embeddings" if known.get("embeddings") else "llm"
    entry = {
        "id": card["id"],
        "object": "model",
        "type": kind,
        "publisher": card["owned_by"],
        "compatibility_type": "gguf",
        "quantization": card.get("quantization", ""),
        "state": "loaded" if card["status"]["value"] == "loaded" else "not-loaded",
        "capabilities": ["tool_use"] if known.get("tools", True) else [],
    }
    length = card.get("max_model_len")
    return entry | {"max_context_length": length} if length else entry
