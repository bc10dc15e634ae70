"""The strategy ``cache_aware``: prefers the engine that has the beginning of a prompt in its prefix cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from enginehouse import (
    Candidate,
    ChunkExtractor,
    Extractor,
    PrefixIndex,
    ReplicaState,
    Requirements,
    Strategy,
    Verdict,
    chunks_of,
)

_CHUNK_TOKENS = 64
"""Blocks of engines have 16 to 64."""
_MOST_COUNTED = 100
_WITHOUT_CACHE = (ReplicaState.STOPPED, ReplicaState.STARTING, ReplicaState.FAILED)


class CacheAwareConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cache_tokens``: the size of one engine's prefix cache; vLLM prints it as *GPU KV cache size*.

    ``load_weight``: the weight of a pending request, in prompts of average length. A higher weight spreads requests
    more evenly; a lower one gives more cache hits.
    """

    cache_tokens: Annotated[int, msgspec.Meta(ge=1)] = 500_000
    load_weight: Annotated[float, msgspec.Meta(ge=0)] = 0.25


class CacheAware(Strategy):
    """Picks the candidate with the fewest tokens to compute, for this prompt without its cached part and for its queue.

    An engine is assumed to have the beginnings of the prompts that it was sent last, ``cache_tokens`` of them. A
    pending request counts as ``load_weight`` prompts of average length, so requests with a popular beginning do not
    queue at one engine while others idle. A better priority comes first, then a ready replica.
    """

    Config: ClassVar[type[CacheAwareConfig]] = CacheAwareConfig

    def __init__(self, config: CacheAwareConfig) -> None:
        self._load_weight = config.load_weight
        self._most_chunks = max(1, config.cache_tokens // _CHUNK_TOKENS)
        self._prefixes = PrefixIndex()
        self._average_tokens = 0.0
        self._counted = 0

    def extractors(self) -> Sequence[Extractor]:
        return [ChunkExtractor(_CHUNK_TOKENS)]

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        ranks = [(each.priority, each.wake_s > 0, sum(self._tokens(requirements, each))) for each in candidates]
        chosen = candidates[ranks.index(min(ranks))]
        self._note(requirements, chosen)
        return chosen

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return the tokens that each candidate lacks, and those of its queue; the score is less their sum."""
        verdicts: list[Verdict] = []
        for each in candidates:
            missing, queued = (round(tokens) for tokens in self._tokens(requirements, each))
            verdicts.append(Verdict(-(missing + queued), {"missing_tokens": missing, "queued_tokens": queued}))
        return verdicts

    def _tokens(self, requirements: Requirements, candidate: Candidate) -> tuple[float, float]:
        """The tokens of the prompt that the candidate has to compute, and those that its pending requests stand for."""
        chunks, missing = chunks_of(requirements), float(requirements.estimated_tokens)
        if chunks and candidate.state not in _WITHOUT_CACHE:
            missing *= 1 - self._prefixes.leading(candidate.replica, chunks) / len(chunks)
        average = max(1, self._average_tokens or requirements.estimated_tokens)
        return missing, self._load_weight * candidate.load.pending * average

    def _note(self, requirements: Requirements, chosen: Candidate) -> None:
        if chosen.state in _WITHOUT_CACHE:
            self._prefixes.forget(chosen.replica)
        self._prefixes.note(chosen.replica, chunks_of(requirements), self._most_chunks)
        self._counted = min(self._counted + 1, _MOST_COUNTED)
        self._average_tokens += (requirements.estimated_tokens - self._average_tokens) / self._counted
