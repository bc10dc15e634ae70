"""Recognizes the words with which engines refuse prompts that are too long, and report a lack of memory."""

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
_MEMORY_SIGNS: Final = re.compile(
    r"out[ _]?of[ _]?(device[ _]?)?memory"  # CUDA and what builds on it; Vulkan
    r"|(failed|unable|cannot) to allocate|cannot allocate memory|bad_alloc|MemoryError"
    r"|(not enough|no available|insufficient) memory"  # SGLang; vLLM with no room for its cache
    r"|free memory on device .* less than"  # vLLM, before it loads the weights
    r"|requires more system memory"  # Ollama
    r"|insufficient system resources",  # LM Studio
    re.IGNORECASE,
)


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


def tells_of_too_little_memory(text: str) -> bool:
    """Whether ``text``, printed by an engine, reports a lack of memory."""
    return _MEMORY_SIGNS.search(text) is not None


def _found(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(next(filter(None, found.groups()))) if found else None


def _whole_number(value: Any) -> int | None:
    return value if type(value) is int else None
