"""The small parts that all OpenAI answers share."""

from __future__ import annotations

import random
from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
Choices = Annotated[int, msgspec.Meta(ge=1, le=128)]
Stop = str | list[str] | None


class StreamOptions(msgspec.Struct):
    """``stream_options`` of a request."""

    include_usage: bool = False


def new_id(prefix: str) -> str:
    """An identifier that no other answer has."""
    return f"{prefix}-{random.getrandbits(96):024x}"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """``usage`` of an answer."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def stop_strings(stop: Stop) -> list[str]:
    """``stop`` of a request as a list; empty texts never stop anything."""
    return [text for text in ([stop] if isinstance(stop, str) else stop or []) if text]
