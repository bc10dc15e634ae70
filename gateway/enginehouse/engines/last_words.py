"""What an engine that did not start leaves behind, understood as far as it matters."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KILLED = (-9, 128 + 9)
"""As the system does when it has no memory left; the second is how a shell tells of it."""
_NO_MEMORY = re.compile(
    r"out[ _]?of[ _]?(device[ _]?)?memory"  # CUDA and what builds on it; Vulkan
    r"|(failed|unable|cannot) to allocate|cannot allocate memory|bad_alloc|MemoryError"
    r"|(not enough|no available|insufficient) memory"  # SGLang; vLLM with no room for its cache
    r"|free memory on device .* less than",  # vLLM, before it loads anything
    re.IGNORECASE,
)


def tell_of_too_little_memory(status: int | None, lines: Iterable[str]) -> bool:
    """Whether an engine that ended with ``status`` and printed ``lines`` would have needed more memory."""
    return status in _KILLED or any(_NO_MEMORY.search(line) for line in lines)
