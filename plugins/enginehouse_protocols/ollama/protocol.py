"""The protocol of https://github.com/ollama/ollama/blob/main/docs/api.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from enginehouse import Protocol
from enginehouse.protocols import Envelope, ProtocolRequest, Translation
from enginehouse_protocols.fields import read
from enginehouse_protocols.ollama.chat import ChatBody, GenerateBody, chat, generate
from enginehouse_protocols.ollama.embed import EmbedBody, EmbeddingsBody, embed, embeddings
from enginehouse_protocols.ollama.pages import PAGES


class Ollama(Protocol):
    """Ollama's own protocol; its streams are lines of JSON."""

    name: ClassVar[str] = "ollama"
    paths = ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings")
    pages = tuple(PAGES)

    def translate(self, request: ProtocolRequest) -> Translation:
        if request.path == "/api/chat":
            body = read(request.body, ChatBody)
            return chat(body, _served(body.model, request.serves))
        if request.path == "/api/generate":
            prompt = read(request.body, GenerateBody)
            return generate(prompt, _served(prompt.model, request.serves))
        if request.path == "/api/embed":
            inputs = read(request.body, EmbedBody)
            return embed(inputs, _served(inputs.model, request.serves))
        text = read(request.body, EmbeddingsBody)
        return embeddings(text, _served(text.model, request.serves))

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
