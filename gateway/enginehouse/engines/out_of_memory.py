"""Recognises an engine that exited because it found too little memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KILLED = (-9, 128 + 9)
"""The kernel's out-of-memory killer sends SIGKILL; a shell reports that as 137."""
_NO_MEMORY = re.compile(
    r"out[ _]?of[ _]?(device[ _]?)?memory"  # CUDA and what builds on it; Vulkan
    r"|(failed|unable|cannot) to allocate|cannot allocate memory|bad_alloc|MemoryError"
    r"|(not enough|no available|insufficient) memory"  # SGLang; vLLM with no room for its cache
    r"|free memory on device .* less than",  # vLLM, before it loads the weights
    re.IGNORECASE,
)


def reports_too_little_memory(status: int | None, lines: Iterable[str]) -> bool:
    """Whether an engine that exited with ``status`` after printing ``lines`` needed more memory."""
    return status in _KILLED or any(_NO_MEMORY.search(line) for line in lines)
