"""The differences between versions of vLLM, in one place."""

from __future__ import annotations

from enum import Enum

import msgspec


class VllmVersion(str, Enum):
    """The version of vLLM whose rules the scheduler follows."""

    V0_32 = "0.32"
    V0_11 = "0.11"


class SchedulingRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one version of vLLM's scheduler.

    ``stop_before_length``: a stop token that is also the last allowed token finishes its request with ``stop``, and
    ``min_tokens`` is left to the sampler, which does not sample stop tokens before. ``reuse_uncached_first``: the pool
    hands out blocks without findable content before all others, the last freed first. ``threshold_when_alone``: the
    long-prefill threshold also limits a request that is alone. ``overtake_unchunked``: without chunked prefill, shorter
    prompts overtake one that exceeds the rest of the budget. ``lookahead_at_admission``: a request gets room for drafts
    when it is admitted, not only when it runs. ``pad_first_decode``: a request whose only missing token is its next one
    gets a full set of drafts at once; all are rejected, but all decodes of a step have equal lengths.
    ``release_images_after_step``: the scheduler releases encodings when the step that used them is over, not when it is
    planned. ``async_by_default``: ``async_scheduling`` is on by default.
    """

    stop_before_length: bool = True
    reuse_uncached_first: bool = True
    threshold_when_alone: bool = False
    overtake_unchunked: bool = False
    lookahead_at_admission: bool = True
    pad_first_decode: bool = True
    release_images_after_step: bool = True
    async_by_default: bool = True


RULES = {
    VllmVersion.V0_32: SchedulingRules(),
    VllmVersion.V0_11: SchedulingRules(
        stop_before_length=False,
        reuse_uncached_first=False,
        threshold_when_alone=True,
        overtake_unchunked=True,
        lookahead_at_admission=False,
        pad_first_decode=False,
        release_images_after_step=False,
        async_by_default=False,
    ),
}


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
