"""Recognises the answer of an engine whose context is too short for a request."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_CODES: Final = ("context_length_exceeded", "exceed_context_size_error")
_WORDS: Final = re.compile(
    r"(maximum|longer than|exceeds?|too long).{0,80}context.(length|size|window)"
    r"|context.(length|size|window).{0,80}exceed|prompt is too long",
    re.IGNORECASE | re.DOTALL,
)
"""OpenAI and llama.cpp have a code; vLLM, SGLang and Anthropic say it in words.

These are wider than the words of ``read_context_overflow``: asking another engine in vain costs little, but an error
in other words must be right."""


class _TooLongRefusal(msgspec.Struct):
    error: Any = None
    message: Any = None


def is_too_long(status: int, body: bytes) -> bool:
    """Whether this answer says that the request is longer than the engine's context."""
    if status not in (400, 413, 422):
        return False
    try:
        refusal = msgspec.json.decode(body, type=_TooLongRefusal)
    except (ValueError, RecursionError):
        return False
    error = refusal.error if isinstance(refusal.error, dict) else {"message": refusal.error or refusal.message}
    told = (error.get("code"), error.get("type"))
    return any(code in _CODES for code in told) or _WORDS.search(str(error.get("message"))) is not None
