"""The tokens that an engine counted, as its answers report them."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, gc=False):
    """OpenAI's counts, and those of its Responses and of Anthropic."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class _Counted(msgspec.Struct, gc=False):
    usage: Usage | None = None


_decode = msgspec.json.Decoder(_Counted).decode


def decoded_usage(text: bytes) -> Usage | None:
    """The counts in an answer; ``None`` if ``text`` is no JSON object that has them."""
    try:
        return _decode(text).usage
    except (ValueError, RecursionError):
        return None
