"""The ``vllm`` driver: vLLM's OpenAI-compatible server."""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_vllm.driver import VllmDriver

__all__ = ["VllmDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the ``vllm`` driver."""
    register("vllm", VllmDriver)
