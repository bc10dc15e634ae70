"""How to talk to the simulated engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from enginehouse import Capabilities, EngineClient, LaunchSpec, OpenAICompatibleDriver, ServedModel, read_json


class SimDriver(OpenAICompatibleDriver):
    """The simulated engine: its model list tells whatever it was told about itself."""

    health_path = "/health"

    def command(self, spec: LaunchSpec) -> Sequence[str]:
        """The launch line of a simulated engine with one model; ``spec.path`` does not matter."""
        context = ["--context-length", str(spec.context_length)] if spec.context_length else []
        where = ["--host", "127.0.0.1", "--port", str(spec.port)]
        return [sys.executable, "-m", "enginehouse_sim", "--model", spec.model, *where, *context]

    async def sleep(self, engine: EngineClient) -> bool:
        """Have it give up its KV cache and stand still."""
        return (await engine.request("POST", "/sleep?level=1")).status == 200

    async def wake(self, engine: EngineClient) -> bool:
        """Have it run again."""
        return (await engine.request("POST", "/wake_up")).status == 200

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The models it lists, with their capabilities; one it was not told of is unknown."""
        listed = read_json(await engine.request("GET", "/v1/models"), _ModelList).data
        return [ServedModel(model.id, model.capabilities()) for model in listed]


class _Model(msgspec.Struct):
    id: str
    max_model_len: int
    vision: bool | None = None
    tools: bool | None = None
    json_mode: bool | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities(
            context_length=self.max_model_len, vision=self.vision, tools=self.tools, json_mode=self.json_mode
        )


class _ModelList(msgspec.Struct):
    data: list[_Model]
