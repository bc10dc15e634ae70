"""The tokens that stand for the prompts of a trace, and their hashes."""

from __future__ import annotations

from typing import Final

from enginehouse_sim.simulator.replay.traces.reader import TraceRequest

_DIGIT: Final = 1 << 28
_OF_PREFIX: Final = 0
_OF_REQUEST: Final = _DIGIT
"""The first token of a run of tokens tells whether the run belongs to a prefix id or to one request."""
_FILLING: Final = [2 * _DIGIT + (n * n * 37 + n // 7) % 1009 for n in range(4096)]
_62_BITS: Final = (1 << 62) - 1
"""Hashes are 64-bit numbers. One of 62 bits leaves room to count up from it."""


def prompt_of(request: TraceRequest, index: int) -> list[int]:
    """The tokens of a prompt: those of its prefix ids, then tokens that no other request has. All are below 2^31."""
    prompt: list[int] = []
    for prefix in request.prefix_ids:
        prompt += _tokens(_OF_PREFIX, prefix, request.prefix_tokens)
    del prompt[request.input_length :]
    if len(prompt) < request.input_length:
        prompt += _tokens(_OF_REQUEST, index, request.input_length - len(prompt))
    return prompt


def block_hashes_of(request: TraceRequest, index: int, block_size: int) -> list[int]:
    """Hashes of the full blocks of ``prompt_of(request, index)``: equal where the prompts are equal up to there.

    Hashing the tokens would take ten times as long.
    """
    known, each = request.prefix_ids, request.prefix_tokens
    num_shared = min(len(known) * each, request.input_length) // block_size
    parent, hashes = 0, []
    for begin in range(0, num_shared * block_size, block_size):
        parent = hash((parent, known[begin // each], known[(begin + block_size - 1) // each])) & _62_BITS
        hashes.append(parent)
    own = hash((parent, index, -1)) & _62_BITS
    hashes.extend(range(own, own + request.input_length // block_size - num_shared))
    return hashes


def _tokens(kind: int, number: int, length: int) -> list[int]:
    """``length`` tokens, of which the first three are unique to ``number``."""
    head = [kind + number % _DIGIT, number // _DIGIT % _DIGIT, number // _DIGIT**2 % _DIGIT]
    if length <= 3:
        return head[:length]
    filling = _FILLING if length <= len(_FILLING) else _FILLING * (length // len(_FILLING) + 1)
    head += filling[: length - 3]
    return head
