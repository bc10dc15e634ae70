"""The driver of vLLM servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from enginehouse.drivers import (
    Continuation,
    EngineClient,
    FoundModel,
    LaunchSpec,
    ModelFacts,
    PartialAnswer,
    StreamTraits,
    SupportsContinuation,
    SupportsHandOver,
    SupportsLaunch,
    SupportsSleep,
    ThinkingFields,
    add_field,
)
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers import (
    OpenAICompatibleDriver,
    continue_answer,
    fill_in_tokens,
    find_model_folders,
    missing_folder,
    model_folder_name,
    option_arguments,
    read_json,
    read_model_folder,
)
from enginehouse_vllm.options import VllmOptions
from enginehouse_vllm.status import read_status


class VllmDriver(OpenAICompatibleDriver, SupportsLaunch, SupportsSleep, SupportsContinuation, SupportsHandOver):
    """vLLM's OpenAI-compatible server. Its model list has each model's context length."""

    Options = VllmOptions
    how_to_install = "`pip install vllm`"
    health_path = "/health"
    endpoints = ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses")
    streams = StreamTraits(added=("token_ids",), withholds_stop=True, default_max_tokens=16, caches_prefixes=True)

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        if not spec.path:
            return None
        context = ["--max-model-len", str(spec.context_length)] if spec.context_length else []
        sleep = ["--enable-sleep-mode"] if spec.sleep else []
        where = ["--host", spec.bind, "--port", str(spec.port), *_part_of_several(spec)]
        options = option_arguments(msgspec.structs.replace(spec.options_as(VllmOptions), sleep_level=None))
        line = ["vllm", "serve", spec.path, "--served-model-name", spec.model, *where, *context, *sleep, *options]
        is_one = (spec.options_as(VllmOptions).data_parallel_size or 1) == 1  # several ranks publish over TCP only
        return [*line, "--kv-events-config", spec.kv_events] if spec.kv_events and is_one else line

    def why_not(self, spec: LaunchSpec) -> str:
        return missing_folder(spec.path)

    def find_models(self, path: Path) -> Sequence[FoundModel]:
        """Folders of Hugging Face models."""
        return [FoundModel(name=model_folder_name(folder), path=str(folder)) for folder in find_model_folders(path)]

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        return ModelFacts(capabilities=read_model_folder(spec.path))

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        """Enable the sleep endpoints, which vLLM serves in development mode only."""
        return {"VLLM_SERVER_DEV_MODE": "1"} if spec.sleep else {}

    async def sleep(self, engine: EngineClient) -> bool:
        """Move the weights to main memory and drop the KV cache. Fails on a server without sleep mode."""
        return (await engine.request("POST", "/sleep?level=1")).status == 200

    async def wake(self, engine: EngineClient) -> bool:
        return (await engine.request("POST", "/wake_up")).status == 200

    async def sleep_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        """At the level of the option ``sleep_level``. At level 2, the weights are dropped too."""
        if spec.options_as(VllmOptions).sleep_level != 2:
            return await self.sleep(engine)
        return (await engine.request("POST", "/sleep?level=2")).status == 200

    async def wake_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        """Weights that level 2 has dropped are read again: https://docs.vllm.ai/en/latest/features/sleep_mode.html."""
        if spec.options_as(VllmOptions).sleep_level != 2:
            return await self.wake(engine)
        reload_weights = b'{"method": "reload_weights"}'
        steps = [("/wake_up?tags=weights", b""), ("/collective_rpc", reload_weights), ("/wake_up?tags=kv_cache", b"")]
        for path, body in steps:
            if (await engine.request("POST", path, body)).status != 200:
                return False
        return True

    async def concurrency(self, engine: EngineClient) -> int | None:
        """``max_num_seqs``, which vLLM reports in development mode only (``VLLM_SERVER_DEV_MODE=1``)."""
        response = await engine.request("GET", "/server_info?config_format=json")
        if response.status != 200:
            return None
        settings = read_json(response, _ServerInfo).vllm_config
        return settings.scheduler_config.max_num_seqs if isinstance(settings, _VllmConfig) else None

    async def priority_order(self, engine: EngineClient, spec: LaunchSpec | None = None) -> int:
        """-1 with ``--scheduling-policy priority``. A server elsewhere tells its policy in development mode only."""
        if spec is not None and _priorities_in(spec):
            return -1
        response = await engine.request("GET", "/server_info?config_format=json")
        if response.status != 200:
            return 0
        settings = read_json(response, _ServerInfo).vllm_config
        ranks = isinstance(settings, _VllmConfig) and settings.scheduler_config.policy == "priority"
        return -1 if ranks else 0

    def thinking(self, spec: LaunchSpec | None) -> ThinkingFields:
        """A budget is an error without ``--reasoning-parser``, so only engines that are launched with it get one."""
        return ThinkingFields(budget="thinking_token_budget" if spec is not None and _reasons(spec) else "")

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        return read_status(await engine.request("GET", "/metrics"))

    def continuable(self, path: str, body: bytes) -> bytes:
        return add_field(body, "return_token_ids", b"true")

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Let the engine tokenize the prompt of a stream that began at an engine of another kind.

        Chat templates may strip the blanks around an open message, such as Llama 3's: then the text too.
        """
        is_chat = answer.path == "/v1/chat/completions"
        return await fill_in_tokens(engine, answer, text=is_chat and answer.text != answer.text.strip())

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """By token ids, chats too; without them by text."""
        return continue_answer(answer, default_max_tokens=16, return_token_ids=True)


def _part_of_several(spec: LaunchSpec) -> Sequence[str]:
    """The flags of one process of an engine that spans several machines:
    https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html#running-vllm-with-multiprocessing.
    """
    if spec.nodes == 1:
        return []
    address, _, port = spec.meet_at.rpartition(":")
    place = ["--nnodes", str(spec.nodes), "--node-rank", str(spec.node_rank)]
    headless = ["--headless"] if spec.node_rank else []
    return [*place, "--master-addr", address, "--master-port", port, *headless]


def _priorities_in(spec: LaunchSpec) -> bool:
    words = " ".join(spec.args).replace("=", " ")
    return spec.options_as(VllmOptions).scheduling_policy == "priority" or "--scheduling-policy priority" in words


def _reasons(spec: LaunchSpec) -> bool:
    flags = ("--reasoning-parser", "--reasoning-config")
    return spec.options_as(VllmOptions).reasoning_parser is not None or any(
        each.startswith(flags) for each in spec.args
    )


class _SchedulerConfig(msgspec.Struct):
    max_num_seqs: int | None = None
    policy: str = ""


class _VllmConfig(msgspec.Struct):
    scheduler_config: _SchedulerConfig = msgspec.field(default_factory=_SchedulerConfig)


class _ServerInfo(msgspec.Struct):
    vllm_config: _VllmConfig | str = ""  # older servers send a text only
