"""The ``openai`` driver: any OpenAI-compatible server."""

from __future__ import annotations

from enginehouse import Driver, OpenAICompatibleDriver, Register, hookimpl


class OpenAIDriver(OpenAICompatibleDriver):
    """Any OpenAI-compatible server. It is healthy if it lists its models."""


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the ``openai`` driver."""
    register("openai", OpenAIDriver)
