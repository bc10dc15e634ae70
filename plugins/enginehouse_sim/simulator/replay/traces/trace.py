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
