"""The driver of SGLang servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from enginehouse import (
    UNKNOWN,
    CannotContinue,
    Capabilities,
    Continuation,
    EngineClient,
    FoundModel,
    InstanceStatus,
    LaunchSpec,
    ModelFacts,
    OpenAICompatibleDriver,
    PartialAnswer,
    ServedModel,
    StreamTraits,
    add_field,
    continue_ids,
    continue_text,
    find_model_folders,
    missing_folder,
    option_arguments,
    read_json,
    read_model_folder,
)
from enginehouse_sglang.options import SglangOptions
from enginehouse_sglang.status import read_status


class SglangDriver(OpenAICompatibleDriver):
    """SGLang's server. Its model list has the context length, ``/model_info`` the other capabilities."""

    Options = SglangOptions
    how_to_install = "`pip install sglang`, or set command to the python that has it"
    health_path = "/health"
    streams = StreamTraits(added=("token_ids",), default_max_tokens=16, caches_prefixes=True)

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        if not spec.path:
            return None
        context = ["--context-length", str(spec.context_length)] if spec.context_length else []
        where = ["--host", "127.0.0.1", "--port", str(spec.port)]
        model = ["--model-path", spec.path, "--served-model-name", spec.model]
        options = option_arguments(spec.options_as(SglangOptions), switches=SglangOptions.__struct_fields__)
        saver = ["--enable-memory-saver"] if spec.sleep and "--enable-memory-saver" not in options else []
        return ["python", "-m", "sglang.launch_server", *model, *where, *context, *saver, *options]

    def why_not(self, spec: LaunchSpec) -> str:
        return missing_folder(spec.path)

    def find_models(self, path: Path) -> Sequence[FoundModel]:
        """Folders of Hugging Face models."""
        return [FoundModel(name=folder.name, path=str(folder)) for folder in find_model_folders(path)]

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        return ModelFacts(capabilities=read_model_folder(spec.path))

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The listed models, each with the capabilities of the loaded one."""
        served = await super().models(engine)
        known = await self._model_information(engine)
        return [ServedModel(model.name, model.capabilities.over(known)) for model in served]

    async def sleep(self, engine: EngineClient) -> bool:
        """Release the memory of weights and KV cache. Fails on a server without ``--enable-memory-saver``."""
        return (await engine.request("POST", "/release_memory_occupation", b"{}")).status == 200

    async def wake(self, engine: EngineClient) -> bool:
        return (await engine.request("POST", "/resume_memory_occupation", b"{}")).status == 200

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """From ``/metrics``; ``None`` for a server that was started without ``--enable-metrics``."""
        response = await engine.request("GET", "/metrics")
        return None if response.status == 404 else read_status(response)

    async def _model_information(self, engine: EngineClient) -> Capabilities:
        for path in ("/model_info", "/get_model_info"):  # older servers know only the second
            response = await engine.request("GET", path)
            if response.status == 200:
                return read_json(response, _ModelInformation).capabilities()
        return UNKNOWN

    def continuable(self, path: str, body: bytes) -> bytes:
        """Older servers ignore the field, and their streams tell no tokens."""
        return add_field(body, "return_token_ids", b"true")

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Have the engine count the tokens of a text that came without them."""
        if answer.tokens is not None:
            return answer
        question = msgspec.json.encode({"prompt": answer.text, "add_special_tokens": False})
        counted = read_json(await engine.request("POST", "/tokenize", question), _Tokenized)
        return msgspec.structs.replace(answer, tokens=counted.count)

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """By token ids if the whole answer has a limit, which ``/v1/completions`` needs; else by text."""
        try:
            if b"_tokens" in answer.body or answer.path == "/v1/completions":
                return continue_ids(answer, default_max_tokens=16, return_token_ids=True)
        except CannotContinue:
            pass
        return continue_text(answer, default_max_tokens=16, return_token_ids=True)


class _Tokenized(msgspec.Struct):
    count: int


class _ModelInformation(msgspec.Struct):
    is_generation: bool | None = None
    has_image_understanding: bool | None = None

    def capabilities(self) -> Capabilities:
        embeddings = None if self.is_generation is None else not self.is_generation
        return Capabilities(vision=self.has_image_understanding, embeddings=embeddings)
