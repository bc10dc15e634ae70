"""``POST /v1/embeddings`` and ``/v1/rerank``: requests that the engine only reads."""

from __future__ import annotations

import math
import random
import struct
from base64 import b64encode
from typing import Any, Literal
from zlib import crc32

import msgspec

from enginehouse_sim.server.call import Call
from enginehouse_sim.server.openai_parts import Positive, new_id
from enginehouse_sim.server.prompts import Part, Prompt, texts_of
from enginehouse_sim.server.simulation import Simulation
from enginehouse_sim.text import pieces

_DIMENSIONS = 64


class EmbeddingBody(msgspec.Struct):
    """What is read of an embeddings request."""

    model: str
    input: Prompt
    dimensions: Positive = _DIMENSIONS
    encoding_format: Literal["float", "base64"] = "float"


class RerankBody(msgspec.Struct):
    """What is read of a rerank request."""

    model: str
    query: str
    documents: list[str | Part]
    top_n: Positive | None = None


async def embeddings(simulation: Simulation, call: Call) -> None:
    """A vector of length 1 for each text, which depends on the seed and the text only."""
    body = call.decode(EmbeddingBody)
    texts = texts_of(body.input)
    tokens = await _read(simulation, body.model, texts)
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(simulation.settings.seed, text, body)}
        for index, text in enumerate(texts)
    ]
    counted = {"prompt_tokens": tokens, "total_tokens": tokens}
    await call.json({"object": "list", "data": data, "model": body.model, "usage": counted})


async def rerank(simulation: Simulation, call: Call) -> None:
    """The documents, those first that share most of the query's words."""
    body = call.decode(RerankBody)
    texts = [one if isinstance(one, str) else one.text or "" for one in body.documents]
    tokens = await _read(simulation, body.model, [body.query, *texts])
    results = [
        {"index": index, "document": {"text": text}, "relevance_score": _overlap(body.query, text)}
        for index, text in enumerate(texts)
    ]
    results.sort(key=lambda result: -float(str(result["relevance_score"])))
    answer = {"id": new_id("rerank"), "model": body.model, "results": results[: body.top_n]}
    await call.json({**answer, "usage": {"total_tokens": tokens}})


async def _read(simulation: Simulation, model: str, texts: list[str]) -> int:
    work = simulation.work(model, texts, max_tokens=0)
    await simulation.generator.answers(work)
    return work.prompt_tokens


def _encoded(seed: int, text: str, body: EmbeddingBody) -> Any:
    draw = random.Random(crc32(text.encode(), seed & 0xFFFFFFFF))
    vector = [draw.uniform(-1, 1) for _ in range(body.dimensions)]
    length = math.hypot(*vector)
    vector = [value / length for value in vector]
    if body.encoding_format == "base64":
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector


def _overlap(query: str, document: str) -> float:
    asked, said = ({piece.strip().lower() for piece in pieces(text)} for text in (query, document))
    return len(asked & said) / len(asked | said) if asked | said else 0.0
