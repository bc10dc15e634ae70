"""Recognizes the words with which engines report a lack of memory."""

from __future__ import annotations

import re

_SIGNS = re.compile(
    r"out[ _]?of[ _]?(device[ _]?)?memory"  # CUDA and what builds on it; Vulkan
    r"|(failed|unable|cannot) to allocate|cannot allocate memory|bad_alloc|MemoryError"
    r"|(not enough|no available|insufficient) memory"  # SGLang; vLLM with no room for its cache
    r"|free memory on device .* less than"  # vLLM, before it loads the weights
    r"|requires more system memory"  # Ollama
    r"|insufficient system resources",  # LM Studio
    re.IGNORECASE,
)


def tells_of_too_little_memory(text: str) -> bool:
    """Whether ``text``, printed by an engine, reports a lack of memory."""
    return _SIGNS.search(text) is not None
