"""Log-probabilities in the response formats of OpenAI and vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from enginehouse_sim.simulator.domain.outputs import TokenLogprobs
from enginehouse_sim.simulator.model.text import bytes_of, piece_of
from enginehouse_sim.simulator.server.generation.prompt_scores import Score


def chat_logprobs(logprobs: Iterable[TokenLogprobs], top: int) -> dict[str, Any]:
    """OpenAI's format for chats: each token, and the ``top`` likeliest tokens at its place."""
    content = [
        {**_chat_token(*alternatives[0]), "top_logprobs": [_chat_token(*one) for one in alternatives[:top]]}
        for alternatives in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(logprobs: Iterable[TokenLogprobs | None], texts: Sequence[str], top: int, offset: int) -> Any:
    """OpenAI's format for completions. ``texts``: those of the tokens; the first begins at character ``offset``.

    ``None`` stands for the first token of a prompt, which has no log-probability.
    """
    offsets, token_logprobs, top_logprobs = [], [], []
    for text, alternatives in zip(texts, logprobs, strict=True):
        offsets.append(offset)
        offset += len(text)
        token_logprobs.append(alternatives[0][1] if alternatives else None)
        likely = alternatives[: max(1, top)] if alternatives else None
        top_logprobs.append({piece_of(token): logprob for token, logprob in likely} if likely else None)
    return {
        "text_offset": offsets,
        "token_logprobs": token_logprobs,
        "tokens": list(texts),
        "top_logprobs": top_logprobs,
    }


def prompt_logprobs(scores: Sequence[Score]) -> list[dict[str, Any] | None]:
    """vLLM's format for prompts: by token id, ``None`` for the first token."""
    return [None, *(_by_id(score) for score in scores)]


def _by_id(score: Score) -> dict[str, Any]:
    ranked = [(score.token, score.logprob, score.rank)]
    ranked += [(token, logprob, rank) for rank, (token, logprob) in enumerate(score.likeliest, 1)]
    return {
        str(token): {"logprob": logprob, "rank": rank, "decoded_token": piece_of(token)}
        for token, logprob, rank in ranked
    }


def _chat_token(token: int, logprob: float) -> dict[str, Any]:
    return {"token": piece_of(token), "logprob": logprob, "bytes": list(bytes_of(token))}
