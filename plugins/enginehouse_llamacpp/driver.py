"""The driver of ``llama-server``, with one model or in router mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from enginehouse import Capabilities
from enginehouse.drivers import (
    EngineClient,
    FoundModel,
    KeepsCache,
    LaunchSpec,
    ModelFacts,
    ServedModel,
    SupportsLaunch,
    ThinkingFields,
    add_field,
)
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers import OpenAICompatibleDriver, option_arguments, read_json
from enginehouse_llamacpp.continuing import LlamaServerStreams
from enginehouse_llamacpp.found_models import find_models
from enginehouse_llamacpp.model_file import model_facts, renders_tools, shards
from enginehouse_llamacpp.options import SWITCHES, THINKING, LlamaCppOptions
from enginehouse_llamacpp.status import read_status

_ASIDE: Final = 0
"""The slot of requests that leave the cache of the others alone."""


class LlamaCppDriver(OpenAICompatibleDriver, SupportsLaunch, LlamaServerStreams, KeepsCache):
    """llama.cpp's ``llama-server``. It is healthy when its model is loaded; ``/props`` has the context per request."""

    idle_connections = 4
    """Each holds a thread of llama-server, which may have no more than 8."""

    Options = LlamaCppOptions
    how_to_install = "`brew install llama.cpp`, or a build of https://github.com/ggml-org/llama.cpp/releases"
    health_path = "/health"
    endpoints = ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses")

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        if not spec.path:
            return None
        options = spec.options_as(LlamaCppOptions)
        whole = options.whole_context(spec.context_length)
        context = ["-c", str(whole)] if whole else []
        where = ["--host", spec.bind, "--port", str(spec.port), "--metrics"]
        flags = option_arguments(options, switches=SWITCHES)
        if spec.cache_folder and options.slot_save_path is None and not options.embedding and not options.reranking:
            flags = [*flags, "--slot-save-path", f"{spec.cache_folder}/"]
        return ["llama-server", "-m", spec.path, "--alias", spec.model, *where, *context, *flags]

    def why_not(self, spec: LaunchSpec) -> str:
        """A GGUF file, or a shard of it, that is not there."""
        for file in self.files(spec):
            if not Path(file).is_file():
                return f"there is no file {file} (download it, or correct the path)"
        return ""

    def files(self, spec: LaunchSpec) -> Sequence[str]:
        """The model's file or its shards, and the files that options name."""
        options = spec.options_as(LlamaCppOptions)
        others = [*options.weights, *filter(None, [options.chat_template_file])]
        return [*(str(each) for each in (shards(Path(spec.path)) if spec.path else ())), *others]

    def find_models(self, path: Path) -> Sequence[FoundModel]:
        """GGUF files, with their shards and projectors."""
        return find_models(path)

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        """Read the GGUF file. Raises ``ConfigError`` if that fails."""
        return model_facts(spec) if spec.path else ModelFacts()

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The listed models. For a single model, ``/props`` takes precedence over the list.

        In router mode the list alone counts, because asking for the properties of a model loads it.
        """
        served = await super().models(engine)
        if len(served) != 1:
            return served
        [only] = served
        properties = read_json(await engine.request("GET", "/props"), _Properties)
        return [ServedModel(only.name, properties.capabilities().over(only.capabilities))]

    async def concurrency(self, engine: EngineClient) -> int | None:
        """The number of slots in ``/props``. A router reports none."""
        response = await engine.request("GET", "/props")
        return (read_json(response, _Properties).total_slots or None) if response.status == 200 else None

    async def save_cache(self, engine: EngineClient) -> Mapping[str, int]:
        """Save every slot: those that have served, the last one first, then those that may have been restored."""
        slots = await _slots(engine)
        slots.sort(key=lambda each: -1 if each.id_task is None else each.id_task, reverse=True)
        return {(name := f"slot-{each.id}"): await _slot(engine, each.id, "save", name) for each in slots}

    async def restore_cache(self, engine: EngineClient, files: Sequence[str]) -> int:
        """Restore the first file into the slot that requests with other prompts take last, and so on.

        llama-server gives such a request the last one of the slots that have not served.
        """
        slots = [each.id for each in await _slots(engine)]
        return sum([await _slot(engine, slot, "restore", file) for slot, file in zip(slots, files, strict=False)])

    def aside(self, body: bytes, slots: int) -> bytes:
        """Have it run in the first slot, which other requests take last."""
        return add_field(body, "id_slot", b"%d" % _ASIDE) if slots > 1 else body

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        return await read_status(engine)

    def thinking(self, spec: LaunchSpec | None) -> ThinkingFields:
        return THINKING


class _Slot(msgspec.Struct):
    """A slot in ``/slots``. Only one that has served has had a task."""

    id: int
    id_task: int | None = None


class _Moved(msgspec.Struct):
    n_saved: int = 0
    n_restored: int = 0


async def _slots(engine: EngineClient) -> list[_Slot]:
    """The slots: first the one that requests with other prompts take last; ``_ASIDE`` is at the end."""
    first, *others = read_json(await engine.request("GET", "/slots"), list[_Slot])
    return [*others, first]


async def _slot(engine: EngineClient, slot: int, action: str, file: str) -> int:
    """The tokens of ``slot`` that were saved to ``file`` or restored from it. Raises ``UpstreamError``."""
    body = msgspec.json.encode({"filename": file})
    moved = read_json(await engine.request("POST", f"/slots/{slot}?action={action}", body), _Moved)
    return moved.n_saved or moved.n_restored


class _Settings(msgspec.Struct):
    n_ctx: int = 0


class _Modalities(msgspec.Struct):
    vision: bool | None = None


class _Properties(msgspec.Struct):
    default_generation_settings: _Settings = msgspec.field(default_factory=_Settings)
    modalities: _Modalities = msgspec.field(default_factory=_Modalities)
    total_slots: int = 0
    chat_template: str | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities(
            context_length=self.default_generation_settings.n_ctx or None,
            vision=self.modalities.vision,
            tools=renders_tools(self.chat_template),
        )
