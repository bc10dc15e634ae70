"""Requests of a trace, in any format."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import EnginehouseError


class TraceError(EnginehouseError):
    """A trace that cannot be read; the message names file, line and remedy."""


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request: its arrival in seconds after the first one, and the lengths of prompt and answer in tokens.

    ``prefix_ids`` name the contents of the prompt from its beginning, ``prefix_tokens`` tokens each: prompts with equal
    leading ids begin with equal tokens. ``model`` and ``key``, the name of one of the gateway's keys, are empty if the
    trace does not say. ``stream``: whether the client asks for a stream.
    """

    arrival: float
    input_length: int
    output_length: int
    prefix_ids: Sequence[int] = ()
    prefix_tokens: int = 512
    model: str = ""
    key: str = ""
    stream: bool = True


_DIGIT = 1 << 28
_OF_PREFIX, _OF_REQUEST = 0, _DIGIT
"""The first token of a run of tokens tells whether the run belongs to a prefix id or to one request."""
_FILLING = [2 * _DIGIT + (n * n * 37 + n // 7) % 1009 for n in range(4096)]
_62_BITS = (1 << 62) - 1
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
