"""The ``vllm`` driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse import Driver, EngineClient, LaunchSpec, OpenAICompatibleDriver, Register, hookimpl


class VllmDriver(OpenAICompatibleDriver):
    """vLLM's OpenAI server; its model list tells each model's context length."""

    health_path = "/health"

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        """The launch line of a server with one model."""
        if not spec.path:
            return None
        context = ["--max-model-len", str(spec.context_length)] if spec.context_length else []
        sleep = ["--enable-sleep-mode"] if spec.sleep else []
        where = ["--host", "127.0.0.1", "--port", str(spec.port)]
        return ["vllm", "serve", spec.path, "--served-model-name", spec.model, *where, *context, *sleep]

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        """What opens the pages for sleep."""
        return {"VLLM_SERVER_DEV_MODE": "1"} if spec.sleep else {}

    async def sleep(self, engine: EngineClient) -> bool:
        """Move the weights to main memory and give up the KV cache; a server without sleep mode cannot."""
        return (await engine.request("POST", "/sleep?level=1")).status == 200

    async def wake(self, engine: EngineClient) -> bool:
        """Move the weights back."""
        return (await engine.request("POST", "/wake_up")).status == 200


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Offer the ``vllm`` driver."""
    register("vllm", VllmDriver)
