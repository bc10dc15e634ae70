"""Requests of a trace, in any format."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import EnginehouseError
from enginehouse_sim.simulator.model.sampler import WORDS
from enginehouse_sim.simulator.model.text import token_id


class TraceError(EnginehouseError):
    """A trace that cannot be read; the message names file, line and remedy."""


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request: its arrival in seconds after the first one, and the lengths of prompt and answer in tokens.

    ``prefix_ids`` name the contents of the prompt from its beginning, ``prefix_tokens`` tokens each: prompts with equal
    leading ids begin with equal tokens.
    """

    arrival: float
    input_length: int
    output_length: int
    prefix_ids: Sequence[int] = ()
    prefix_tokens: int = 512


_WORDS = [token_id(f" {word}") for word in WORDS]
_RING = [_WORDS[(n * n * 37 + n // 7) % len(_WORDS)] for n in range(4096)]


def prompt_of(request: TraceRequest, index: int) -> list[int]:
    """The tokens of a prompt: those of its prefix ids, then tokens that no other request has."""
    prompt: list[int] = []
    for prefix in request.prefix_ids:
        prompt += _tokens(f"p{prefix}", request.prefix_tokens)
    del prompt[request.input_length :]
    if len(prompt) < request.input_length:
        prompt += _tokens(f"r{index}", request.input_length - len(prompt))
    return prompt


def _tokens(source: str, number: int) -> list[int]:
    """``number`` tokens, of which the first one is unique to ``source``."""
    words = _RING * (number // len(_RING) + 1)
    return [token_id(source), *words[: number - 1]]
