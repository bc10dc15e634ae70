"""The ``vllm`` driver."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import Driver, LaunchSpec, OpenAICompatibleDriver, Register, hookimpl


class VllmDriver(OpenAICompatibleDriver):
    """vLLM's OpenAI server; its model list tells each model's context length."""

    health_path = "/health"

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        """The launch line of a server with one model."""
        if not spec.path:
            return None
        context = ["--max-model-len", str(spec.context_length)] if spec.context_length else []
        where = ["--host", "127.0.0.1", "--port", str(spec.port)]
        return ["vllm", "serve", spec.path, "--served-model-name", spec.model, *where, *context]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Offer the ``vllm`` driver."""
    register("vllm", VllmDriver)
