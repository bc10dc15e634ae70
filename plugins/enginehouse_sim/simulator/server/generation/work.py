"""The work of one HTTP request, and the engine's requests for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse_sim.simulator.domain.images import MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.model.text import EOS


class EncodedPrompt(msgspec.Struct, frozen=True):
    """The tokens to continue, and the images among them."""

    token_ids: list[int]
    mm_inputs: Sequence[MultiModalInput] = ()


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """``choices`` answers to each prompt. Choice ``c`` of prompt ``p`` has the number ``p * choices + c``.

    ``max_tokens``: the most tokens of each answer; with 0, the engine only computes the prompts, as for embeddings.
    ``stops``: strings that end an answer; ``include_stop``: show the string or token that ended it. ``grammar``: as
    ``Grammar`` takes it. ``logprobs``: the number of likeliest tokens to report at each place, at least the sampled
    one. ``follows``: the id of a request that has migrated here; the answer is the rest of its answer after the only
    prompt, and no request begins. The other fields are those of ``RequestState``.
    """

    id: str
    prompts: Sequence[EncodedPrompt]
    max_tokens: int
    choices: int = 1
    min_tokens: int = 0
    ignore_eos: bool = False
    stops: Sequence[str] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    grammar: str | None = None
    logprobs: int | None = None
    prompt_logprobs: bool = False
    priority: int = 0
    lora: str | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    follows: str | None = None

    @property
    def size(self) -> int:
        """The number of answers."""
        return len(self.prompts) * self.choices

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts."""
        return sum(len(prompt.token_ids) for prompt in self.prompts)

    def request(self, number: int, request_id: str) -> RequestState:
        """The engine's request for one answer."""
        at, choice = divmod(number, self.choices)
        prompt = self.prompts[at]
        return RequestState(
            request_id=request_id,
            prompt_token_ids=prompt.token_ids,
            mm_inputs=prompt.mm_inputs,
            max_tokens=self.max_tokens,
            pooling=not self.max_tokens,
            choice=choice,
            eos_token_id=EOS,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            stop_token_ids=self.stop_token_ids,
            structured_output=self.grammar,
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            priority=self.priority,
            lora=self.lora,
            cache_salt=self.cache_salt,
            kv_transfer_params=self.kv_transfer_params,
        )
