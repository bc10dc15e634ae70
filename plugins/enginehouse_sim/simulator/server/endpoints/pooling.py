"""``POST /v1/embeddings``, ``/v1/rerank`` and ``/v1/score``: requests that generate nothing."""

from __future__ import annotations

import math
import struct
import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.model.text import encode, pieces
from enginehouse_sim.simulator.server.endpoints.common import Positive, new_id
from enginehouse_sim.simulator.server.generation.answer import Answer
from enginehouse_sim.simulator.server.generation.prompts import ContentPart, PromptInput, prompts_of
from enginehouse_sim.simulator.server.generation.work import EncodedPrompt, Work
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


class EmbeddingBody(msgspec.Struct):
    """The fields that the endpoint reads. It ignores all others."""

    model: str
    input: PromptInput
    dimensions: Positive | None = None
    encoding_format: Literal["float", "base64"] = "float"


class RerankBody(msgspec.Struct):
    """The fields that the endpoint reads. It ignores all others."""

    model: str
    query: str
    documents: list[str | ContentPart]
    top_n: Positive | None = None


class ScoreBody(msgspec.Struct):
    """The fields that the endpoint reads. It ignores all others."""

    model: str
    text_1: str | list[str]
    text_2: str | list[str]


async def embeddings(simulation: Simulation, call: Call) -> None:
    """Answer a vector of length 1 for each text. It depends only on the seed and the text."""
    body = call.decode(EmbeddingBody)
    id = new_id("embd", call)
    work = _reading(simulation, id, body.model, prompts_of(body.input))
    data = [
        {"object": "embedding", "index": answer.choice, "embedding": _encoded(answer.pooled, body)}
        for answer in await _read(simulation, work)
    ]
    counted = {"prompt_tokens": work.prompt_tokens, "total_tokens": work.prompt_tokens}
    await call.json({"id": id, "object": "list", "data": data, "model": body.model, "usage": counted})


async def rerank(simulation: Simulation, call: Call) -> None:
    """Order the documents by the words that they share with the query."""
    body = call.decode(RerankBody)
    texts = [one if isinstance(one, str) else one.text or "" for one in body.documents]
    if not texts:
        raise InvalidRequest("There are no 'documents' to put in order")
    prompts = [EncodedPrompt(encode(f"{body.query}\n{text}")) for text in texts]
    work = _reading(simulation, new_id("rerank", call), body.model, prompts)
    await _read(simulation, work)
    results = [
        {"index": index, "document": {"text": text}, "relevance_score": _overlap(body.query, text)}
        for index, text in enumerate(texts)
    ]
    results.sort(key=lambda result: -float(str(result["relevance_score"])))
    answer = {"id": work.id, "model": body.model, "results": results[: body.top_n]}
    await call.json({**answer, "usage": {"total_tokens": work.prompt_tokens}})


async def score(simulation: Simulation, call: Call) -> None:
    """Score each pair of texts by the words that they share. A single ``text_1`` is paired with every ``text_2``."""
    body = call.decode(ScoreBody)
    first, second = ([texts] if isinstance(texts, str) else texts for texts in (body.text_1, body.text_2))
    if len(first) == 1:
        first = first * len(second)
    if not second or len(first) != len(second):
        raise InvalidRequest("'text_1' is one text, or as many as 'text_2', which is not empty")
    pairs = list(zip(first, second, strict=True))
    prompts = [EncodedPrompt(encode(f"{one}\n{other}")) for one, other in pairs]
    work = _reading(simulation, new_id("score", call), body.model, prompts)
    await _read(simulation, work)
    data = [
        {"index": index, "object": "score", "score": _overlap(one, other)} for index, (one, other) in enumerate(pairs)
    ]
    counted = {"prompt_tokens": work.prompt_tokens, "total_tokens": work.prompt_tokens}
    head = {"id": work.id, "object": "list", "created": int(time.time()), "model": body.model}
    await call.json({**head, "data": data, "usage": counted})


def _reading(simulation: Simulation, id: str, model: str, prompts: Sequence[EncodedPrompt]) -> Work:
    lora = simulation.lora(model)
    max_tokens = simulation.max_tokens(prompts, 0)
    return Work(id=id, prompts=prompts, max_tokens=max_tokens, lora=lora)


async def _read(simulation: Simulation, work: Work) -> Sequence[Answer]:
    with simulation.generator.run(work) as run:
        return await run.finished()


def _encoded(vector: Sequence[float], body: EmbeddingBody) -> Any:
    if body.dimensions is not None:
        if body.dimensions > len(vector):
            raise InvalidRequest(f"Embeddings have {len(vector)} dimensions here: ask for fewer")
        length = math.hypot(*vector[: body.dimensions])
        vector = [value / length for value in vector[: body.dimensions]]
    if body.encoding_format == "base64":
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector


def _overlap(query: str, document: str) -> float:
    """The Jaccard index of the two sets of words, 0 to 1."""
    asked, said = ({piece.strip().lower() for piece in pieces(text)} for text in (query, document))
    return len(asked & said) / len(asked | said) if asked | said else 0.0
