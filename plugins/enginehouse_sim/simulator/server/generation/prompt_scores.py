"""Log-probabilities of a prompt's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse_sim.simulator.domain.outputs import TokenLogprobs
from enginehouse_sim.simulator.model.sampler import WORDS, TextSampler


class Score(msgspec.Struct, frozen=True):
    """A prompt token with its log-probability and rank (1 is the likeliest), and the likeliest tokens at its place."""

    token: int
    logprob: float
    rank: int
    likeliest: Sequence[tuple[int, float]]

    @property
    def logprobs(self) -> TokenLogprobs:
        """The token first, then the others: the shape of generated tokens."""
        return [(self.token, self.logprob), *(one for one in self.likeliest if one[0] != self.token)]


def prompt_scores(seed: int, token_ids: Sequence[int], count: int) -> list[Score]:
    """The scores of all tokens but the first, each with ``count`` alternatives.

    A token that the model would never generate counts as the least likely of its vocabulary.
    """
    sampler = TextSampler.of_tokens(seed, token_ids[:1])
    scores = []
    for token in token_ids[1:]:
        scores.append(_score(sampler, token, count))
        sampler.push(token)
    return scores


def _score(sampler: TextSampler, token: int, count: int) -> Score:
    ranked = sampler.alternatives(sampler.copy().next(may_end=False), len(WORDS))
    rank = next((rank for rank, (one, _) in enumerate(ranked, 1) if one == token), len(ranked))
    return Score(token, ranked[rank - 1][1], rank, ranked[:count])
