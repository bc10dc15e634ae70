"""The protocol of https://github.com/ollama/ollama/blob/main/docs/api.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from enginehouse import InvalidRequest
from enginehouse.errors import ModelNotFound
from enginehouse_kit.protocols import Envelope, Native, Protocol, ProtocolRequest, Translation
from enginehouse_protocols.fields import read
from enginehouse_protocols.ollama.native import EngineLines
from enginehouse_protocols.ollama.request import (
    ChatBody,
    EmbedBody,
    EmbeddingsBody,
    GenerateBody,
    chat,
    embed,
    embeddings,
    generate,
)

VERSION = "0.12.6"
"""The version of Ollama whose endpoints these are: clients refuse what they think is too old."""
_LOADED_FOR = 300
"""Seconds that a loaded model is said to stay: the gateway decides when it unloads one."""

Cards = Sequence[Mapping[str, Any]]


class ShownModel(msgspec.Struct):
    """The model that a page is about, in either of two fields."""

    model: str = ""
    name: str = ""


def _tags(body: bytes, cards: Cards) -> Any:
    return {"models": [_entry(card) for card in cards]}


def _ps(body: bytes, cards: Cards) -> Any:
    until = datetime.fromtimestamp(_now() + _LOADED_FOR, timezone.utc).isoformat()
    loaded = [card for card in cards if card["status"]["value"] == "loaded"]
    return {"models": [_entry(card) | {"expires_at": until, "size_vram": 0} for card in loaded]}


def _show(body: bytes, cards: Cards) -> Any:
    named = read(body, ShownModel)
    wanted = named.model or named.name
    if not wanted:
        raise InvalidRequest("model is required", param="model")
    by_name = {card["id"]: card for card in cards}
    card = by_name.get(_served(wanted, by_name.__contains__))
    if card is None:
        raise ModelNotFound(wanted)
    length = card.get("max_model_len")
    info = {"general.architecture": "llama"} | ({"llama.context_length": length} if length else {})
    about = {"modelfile": "", "parameters": "", "template": "", "details": _details(card)}
    return about | {"model_info": info, "capabilities": _capabilities(card.get("capabilities", {}))}


def _capabilities(known: Mapping[str, bool]) -> list[str]:
    """In Ollama's words. A model whose engine does not say whether it takes tools may well do."""
    words = {"completion": True, "tools": known.get("tools", True)}
    words |= {"vision": known.get("vision", False), "embedding": known.get("embeddings", False)}
    return [word for word, has in words.items() if has]


def _version(body: bytes, cards: Cards) -> Any:
    return {"version": VERSION}


PAGES: Mapping[tuple[str, str], Callable[[bytes, Cards], Any]] = {
    ("GET", "/api/tags"): _tags,
    ("GET", "/api/ps"): _ps,
    ("POST", "/api/show"): _show,
    ("GET", "/api/version"): _version,
}


def _entry(card: Mapping[str, Any]) -> dict[str, Any]:
    since = datetime.fromtimestamp(card["created"], timezone.utc).isoformat()
    return {
        "name": card["id"],
        "model": card["id"],
        "modified_at": since,
        "size": card.get("size", 0),
        "digest": sha256(card["id"].encode()).hexdigest(),
        "details": _details(card),
    }


def _details(card: Mapping[str, Any]) -> dict[str, Any]:
    level = card.get("quantization", "")
    of = {"parent_model": "", "format": "gguf", "family": "", "families": None, "parameter_size": ""}
    return {**of, "quantization_level": level}


def _now() -> float:
    return datetime.now(timezone.utc).timestamp()


_REQUESTS: Mapping[str, tuple[Any, Callable[[Any, str], Translation]]] = {
    "/api/chat": (ChatBody, chat),
    "/api/generate": (GenerateBody, generate),
    "/api/embed": (EmbedBody, embed),
    "/api/embeddings": (EmbeddingsBody, embeddings),
}
"""By path: the form of a body, and what an engine is asked for."""


class Ollama(Protocol):
    """Ollama's own protocol; its streams are lines of JSON."""

    name: ClassVar[str] = "ollama"
    paths = tuple(_REQUESTS)
    pages = tuple(PAGES)
    other_paths = tuple(f"/api/{name}" for name in ("blobs", "copy", "create", "delete", "pull", "push"))

    def translate(self, request: ProtocolRequest) -> Translation:
        form, ask = _REQUESTS[request.path]
        body = read(request.body, form)
        return ask(body, _served(body.model, request.serves))

    def native(self, request: ProtocolRequest) -> Native:
        return Native(answer=EngineLines())

    def error(self, status: int, envelope: Envelope) -> bytes:
        return msgspec.json.encode({"error": envelope["error"].get("message", "")})

    def page(self, method: str, path: str, body: bytes, models: Sequence[Mapping[str, Any]]) -> bytes:
        return msgspec.json.encode(PAGES[method, path](body, models))


def _served(model: str, serves: Callable[[str], bool]) -> str:
    """The name of ``model`` here: Ollama's clients add the tag ``latest`` to a name without one, or leave it out."""
    if serves(model):
        return model
    other = model.removesuffix(":latest") if model.endswith(":latest") else f"{model}:latest"
    return other if serves(other) else model
