"""The metrics that are kept over time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests": "1/s",
        "failed": "1/s",
        "tokens_in": "1/s",
        "tokens_out": "1/s",
        "ttft_ms_p50": "ms",
        "ttft_ms_p99": "ms",
        "itl_ms_p50": "ms",
        "itl_ms_p99": "ms",
        "queue": "requests",
        "cached_ratio": "ratio",
        "kv_usage": "ratio",
        "gpu_memory": "bytes",
    }
)
"""Every metric and its unit. Requests and tokens are counted when a request ends.

``queue``, ``kv_usage`` and ``gpu_memory`` are read as they are at the moment; a minute has the mean of its seconds.
"""
