"""Recognizes the words with which engines refuse prompts that are too long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_SIGNS: Final = re.compile(
    r"maximum context length|context size|model length of|maximum allowed length"  # vLLM, SGLang; llama.cpp
    r"|model's context length|context length of only|too long to fit",  # SGLang, vLLM; LM Studio
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(
    r"(?:context length(?: is| of)?(?: only)?|context size|allowed length|model length of) ?\(?(?:is )?(\d+)"
)
_WHOLE: Final = re.compile(r"total of(?: at least)? (\d+) tokens|requested (\d+) tokens|asks for (\d+) tokens")
_INPUT: Final = re.compile(
    r"input \((\d+) tokens|Input length \((\d+)|request \((\d+) tokens|prompt \((?:total )?length (\d+)"
    r"|first (\d+) tokens|(\d+)(?: of)? input"
)
_OUTPUT: Final = re.compile(r"requested (\d+) output|too large: (\d+)|(\d+) of output")
_LLAMACPP: Final = "exceed_context_size_error"


class ContextOverflow(NamedTuple):
    """The tokens that a prompt and its answer need, and the longest context; each is ``None`` if it is not told."""

    tokens: int | None
    limit: int | None


def read_context_overflow(error: Any) -> ContextOverflow | None:
    """What an engine's ``error``, an object or a text, says of a prompt that is too long; ``None`` for another error.

    The words are those of ``server-context.cpp`` of llama.cpp, ``renderers/params.py`` and ``serving_engine.py`` of
    vLLM, and ``tokenizer_manager.py`` of SGLang, and of their earlier versions.
    """
    if isinstance(error, Mapping):
        if error.get("type") == _LLAMACPP:
            return ContextOverflow(_whole_number(error.get("n_prompt_tokens")), _whole_number(error.get("n_ctx")))
        error = error.get("message")
    if not isinstance(error, str) or _SIGNS.search(error) is None:
        return None
    limit, tokens = _found(_LIMIT, error), _found(_WHOLE, error)
    if tokens is None and (tokens := _found(_INPUT, error)) is not None:
        tokens += _found(_OUTPUT, error) or 0
    return ContextOverflow(tokens, limit)


def _found(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(next(filter(None, found.groups()))) if found else None


def _whole_number(value: Any) -> int | None:
    return value if type(value) is int else None
