"""A request on its way from one engine to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse_sim.simulator.domain.images import MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState


class MovedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What another engine must know of a request: the fields of ``RequestState`` that no scheduler derives."""

    request_id: str
    prompt_token_ids: list[int]
    output_token_ids: list[int]
    max_tokens: int
    min_tokens: int
    choice: int
    logprobs: int | None
    priority: int
    arrival_time: float
    eos_token_id: int | None
    ignore_eos: bool
    stop_token_ids: frozenset[int]
    lora: str | None
    cache_salt: str | None
    structured_output: str | None
    mm_inputs: Sequence[MultiModalInput]
    prompt_logprobs: bool
    pooling: bool
    kv_transfer_params: dict[str, Any] | None

    @classmethod
    def of(cls, request: RequestState) -> MovedRequest:
        """``request``, for another engine."""
        return cls(**{name: getattr(request, name) for name in cls.__struct_fields__})

    def state(self) -> RequestState:
        """The request there: with the outputs so far, and nothing computed."""
        return RequestState(**{name: getattr(self, name) for name in self.__struct_fields__})
