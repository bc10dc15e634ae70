"""How likely the tokens of a prompt are, each behind those before it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse_sim.model.continuation import WORDS, Continuation
from enginehouse_sim.scheduler.output import TokenLogprobs


class Score(msgspec.Struct, frozen=True):
    """One token of a prompt: its logprob and its rank, 1 for the likeliest, and the likeliest tokens at its place."""

    token: int
    logprob: float
    rank: int
    likeliest: Sequence[tuple[int, float]]

    @property
    def logprobs(self) -> TokenLogprobs:
        """The token first, as tokens that were made have it."""
        return [(self.token, self.logprob), *(one for one in self.likeliest if one[0] != self.token)]


def prompt_scores(seed: int, token_ids: Sequence[int], count: int) -> list[Score]:
    """The scores of all tokens but the first, which has nothing before it, with ``count`` alternatives each.

    A token that the model would never make counts as the least likely of those that it would.
    """
    place = Continuation.of_tokens(seed, token_ids[:1])
    scores = []
    for token in token_ids[1:]:
        scores.append(_score(place, token, count))
        place.push(token)
    return scores


def _score(place: Continuation, token: int, count: int) -> Score:
    ranked = place.alternatives(place.copy().next(may_end=False), len(WORDS))
    rank = next((rank for rank, (one, _) in enumerate(ranked, 1) if one == token), len(ranked))
    return Score(token, ranked[rank - 1][1], rank, ranked[:count])
