"""The methods of making drafts, and their costs."""

from __future__ import annotations

from enum import Enum

import msgspec


class DraftMethod(str, Enum):
    """How drafts are made, as far as the scheduler sees it."""

    NGRAM = "ngram"
    DRAFT_MODEL = "draft_model"
    EAGLE = "eagle"


class DraftRules(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a draft method for a request in every step, as in vLLM.

    ``lookahead``: whether the drafter needs room for keys and values of its drafts. ``slots``: tokens of the budget
    that each request takes besides its own. ``drops_last_block``: a prefix match loses its last block, which the
    drafter computes again for its hidden states. ``reads_ahead``: known tokens that the drafter reads beyond those
    computed. ``needs_result``: whether the drafter works on the result of a step, outside of the model, so that the
    next step cannot be planned before.
    """

    lookahead: bool = False
    slots: int = 0
    drops_last_block: bool = False
    reads_ahead: int = 0
    needs_result: bool = False


DRAFT_RULES = {
    DraftMethod.NGRAM: DraftRules(needs_result=True),
    DraftMethod.DRAFT_MODEL: DraftRules(lookahead=True, slots=1),
    DraftMethod.EAGLE: DraftRules(lookahead=True, drops_last_block=True, reads_ahead=1),
}
