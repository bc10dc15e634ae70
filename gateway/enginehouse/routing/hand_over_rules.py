"""Which engines may share a request: one reads the prompt, and another one answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from enginehouse.domain.replica import Candidate


class HandOverRules(NamedTuple):
    """Which engines hand prompts over or take them, which serve a request alone, and which make a pair.

    ``pairs``: requests to the endpoint are handed over at all.
    """

    can_hand_over: Callable[[Candidate], bool]
    serves_alone: Callable[[Candidate], bool]
    can_pair: Callable[[Candidate, Candidate], bool] = lambda prefill, decode: True
    pairs: bool = True


NO_HAND_OVER = HandOverRules(lambda _: False, lambda _: True)
