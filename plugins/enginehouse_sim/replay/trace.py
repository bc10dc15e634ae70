"""What a trace says of its requests, whatever format it is written in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

import msgspec

from enginehouse import EnginehouseError


class TraceError(EnginehouseError):
    """A trace that cannot be read; the message names file, line and remedy."""


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request: when it came, in seconds after the first, and how many tokens went in and out.

    ``prefix_ids`` name the contents of its prompt, ``prefix_tokens`` tokens each, from its beginning: requests that
    begin with the same ids begin with the same tokens.
    """

    arrival: float
    input_length: int
    output_length: int
    prefix_ids: Sequence[int] = ()
    prefix_tokens: int = 512


def prompt_of(request: TraceRequest, index: int) -> list[int]:
    """The tokens of a prompt: those that its prefix ids name, then ones that no other request has."""
    named = (token for prefix in request.prefix_ids for token in _tokens(2 * prefix, request.prefix_tokens))
    prompt = list(islice(named, request.input_length))
    prompt.extend(_tokens(2 * index + 1, request.input_length - len(prompt)))
    return prompt


def _tokens(source: int, number: int) -> Iterator[int]:
    return islice(count(source << 24), number)
