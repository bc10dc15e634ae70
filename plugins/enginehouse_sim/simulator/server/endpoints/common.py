"""Types and fields that several endpoints share."""

from __future__ import annotations

import random
from typing import Annotated, Any

import msgspec

from enginehouse_sim.simulator.server.generation.run import Run
from enginehouse_sim.simulator.server.http.call import Call

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Choices = Annotated[int, msgspec.Meta(ge=1, le=128)]
Alternatives = Annotated[int, msgspec.Meta(ge=0, le=20)]
Stop = str | list[str] | None


class StreamOptions(msgspec.Struct):
    """``stream_options`` of a request."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


def new_id(prefix: str, call: Call) -> str:
    """The id of a response: the request's ``X-Request-Id``, or a random one."""
    given = call.header(b"x-request-id")
    return f"{prefix}-{given.decode('latin-1') if given else f'{random.getrandbits(96):024x}'}"


def usage(run: Run) -> dict[str, Any]:
    """The ``usage`` of the answers so far."""
    prompt_tokens, completion_tokens = run.work.prompt_tokens, run.completion_tokens
    counted: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if run.cached_tokens > 0:
        counted["prompt_tokens_details"] = {"cached_tokens": run.cached_tokens}
    return counted


def stop_strings(stop: Stop) -> list[str]:
    """``stop`` as a list, without empty strings."""
    return [text for text in ([stop] if isinstance(stop, str) else stop or []) if text]
