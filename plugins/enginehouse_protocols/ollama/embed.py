"""Embeddings."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from enginehouse.protocols import Translation
from enginehouse_protocols.fields import of_engine, put
from enginehouse_protocols.said.engine_chat import read_usage

EMBEDDINGS = "/v1/embeddings"


class EmbedBody(msgspec.Struct):
    """A request for ``/api/embed``."""

    model: str
    input: str | list[str]
    dimensions: int | None = None


class EmbeddingsBody(msgspec.Struct):
    """A request for ``/api/embeddings``, the older of the two: one text."""

    model: str
    prompt: str


class _Vector(msgspec.Struct):
    embedding: Any
    index: int = 0


class _Vectors(msgspec.Struct):
    data: list[_Vector]


def embed(body: EmbedBody, model: str) -> Translation:
    """Embeddings of one text or of several."""
    fields: dict[str, Any] = {"model": model, "input": body.input}
    put(fields, dimensions=body.dimensions)
    return _Embeddings(body.model, fields)


def embeddings(body: EmbeddingsBody, model: str) -> Translation:
    """The embedding of one text."""
    return _OneEmbedding(body.model, {"model": model, "input": body.prompt})


class _Embeddings(Translation):
    path = EMBEDDINGS

    def __init__(self, model: str, fields: dict[str, Any]) -> None:
        self.body = msgspec.json.encode(fields)
        self._model = model
        self._began = time.monotonic_ns()

    def answer(self, answer: dict[str, Any]) -> bytes:
        usage = read_usage(answer.get("usage"))
        return msgspec.json.encode(
            {
                "model": self._model,
                "embeddings": _vectors(answer),
                "total_duration": time.monotonic_ns() - self._began,
                "load_duration": 0,
                "prompt_eval_count": usage.prompt,
            }
        )


class _OneEmbedding(_Embeddings):
    def answer(self, answer: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"embedding": next(iter(_vectors(answer)), [])})


def _vectors(answer: dict[str, Any]) -> list[Any]:
    entries = of_engine(answer, _Vectors).data
    return [entry.embedding for entry in sorted(entries, key=lambda entry: entry.index)]
