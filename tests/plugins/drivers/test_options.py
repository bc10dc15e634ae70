"""The options of a launched engine, from the configuration to its launch line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse import Capabilities, ConfigError
from enginehouse.config.schema import ModelSettings
from enginehouse.drivers import LaunchSpec, SupportsLaunch
from enginehouse.engines.launch_line import launch_line
from enginehouse.interfaces.driver_support import support_of
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_llamacpp.options import LlamaCppOptions
from enginehouse_openai import OpenAIDriver
from enginehouse_sglang import SglangDriver
from enginehouse_sim import SimDriver
from enginehouse_vllm import VllmDriver


def _flags(driver: SupportsLaunch, name: str, options: dict[str, Any], **settings: Any) -> str:
    model = ModelSettings(driver=name, path="/m", options=options, **settings)
    return " ".join(launch_line("m", model, driver, 4711).command).partition("--port 4711")[2].strip()


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"n_gpu_layers": 99, "parallel": 4}, "--metrics --n-gpu-layers 99 --parallel 4"),
        ({"n_gpu_layers": "all", "warmup": False, "jinja": True}, "--metrics --n-gpu-layers all --no-warmup --jinja"),
        ({"embedding": True, "pooling": "mean", "reranking": False}, "--metrics --embedding --pooling mean"),
        ({"cache_type_k": "q8_0", "flash_attn": "on"}, "--metrics --flash-attn on --cache-type-k q8_0"),
    ],
)
def test_options_of_llamacpp_become_flags(options: dict[str, Any], flags: str) -> None:
    assert _flags(LlamaCppDriver(), "llamacpp", options) == flags


@pytest.mark.parametrize(
    ("options", "whole"),
    [({}, 2048), ({"parallel": 4}, 8192), ({"parallel": -1}, 2048), ({"parallel": 4, "kv_unified": True}, 2048)],
)
def test_each_slot_of_a_llama_server_has_the_configured_context(options: dict[str, Any], whole: int) -> None:
    assert f"-c {whole}" in _flags(LlamaCppDriver(), "llamacpp", options, context_length=2048)


def test_options_of_vllm_become_flags() -> None:
    options = {
        "tensor_parallel_size": 2,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "lora_modules": ["a=/a", "b=/b"],
        "kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    }
    assert _flags(VllmDriver(), "vllm", options) == (
        "--tensor-parallel-size 2 --no-enable-prefix-caching --enforce-eager --lora-modules a=/a b=/b "
        '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}'
    )


def test_options_of_sglang_have_no_negative_flags() -> None:
    options = {"tp_size": 2, "enable_metrics": True, "disable_radix_cache": False, "disaggregation_mode": "prefill"}
    assert _flags(SglangDriver(), "sglang", options) == "--tp-size 2 --enable-metrics --disaggregation-mode prefill"


@pytest.mark.parametrize(
    ("driver", "name", "options", "message"),
    [
        (
            LlamaCppDriver(),
            "llamacpp",
            {"n_gpu_layer": 9},
            r'models.m.options.n_gpu_layer: .*did you mean "n_gpu_layers"',
        ),
        (
            LlamaCppDriver(),
            "llamacpp",
            {"parallel": "four"},
            r"models.m.options.parallel: option 'parallel' of the driver",
        ),
        (
            VllmDriver(),
            "vllm",
            {"scheduling_policy": "lifo"},
            r"models.m.options.scheduling_policy: .*\(write \"fcfs\" or \"priority\"\)",
        ),
        (VllmDriver(), "vllm", {"sleep_level": 3}, r"models.m.options.sleep_level: .*\(write 1 or 2\)"),
        (
            support_of(OpenAIDriver()).launch,
            "openai",
            {"a": 1},
            r"models.m.options.a: unknown option 'a' .*takes no options",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_its_key(
    driver: SupportsLaunch, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _flags(driver, name, options, command="engine ${port}")


@pytest.mark.parametrize("driver", [VllmDriver(), SglangDriver()])
def test_a_folder_may_be_missing_a_name_on_a_hub_may_not(driver: SupportsLaunch, tmp_path: Path) -> None:
    assert "there is no folder" in driver.why_not(LaunchSpec(model="m", path=f"{tmp_path}/gone", port=1))
    assert driver.why_not(LaunchSpec(model="m", path=str(tmp_path), port=1)) == ""
    assert driver.why_not(LaunchSpec(model="m", path="Qwen/Qwen3-8B", port=1)) == ""


@pytest.mark.parametrize("driver", [VllmDriver(), SglangDriver()])
@pytest.mark.parametrize(
    ("config", "capabilities"),
    [
        ({"max_position_embeddings": 4096, "rope_scaling": None}, Capabilities(context_length=4096)),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 4.0}}, Capabilities()),
        (
            {"text_config": {"max_position_embeddings": 8192}, "vision_config": {"depth": 24}},
            Capabilities(context_length=8192, vision=True),
        ),
    ],
)
def test_a_models_folder_tells_its_capabilities(
    driver: SupportsLaunch, config: dict[str, Any], capabilities: Capabilities, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    assert driver.inspect(LaunchSpec(model="m", path=str(tmp_path), port=1)).capabilities == capabilities


@pytest.mark.parametrize("driver", [VllmDriver(), SglangDriver()])
def test_a_name_on_a_hub_tells_nothing(driver: SupportsLaunch) -> None:
    assert driver.inspect(LaunchSpec(model="m", path="Qwen/Qwen3-8B", port=1)).capabilities == Capabilities()


@pytest.mark.parametrize("driver", [LlamaCppDriver(), VllmDriver(), SglangDriver(), SimDriver()])
def test_an_engine_listens_where_it_is_placed(driver: SupportsLaunch) -> None:
    spec = LaunchSpec(model="m", path="/m", port=5000, bind="10.0.0.7")
    assert "--host 10.0.0.7 --port 5000" in " ".join(driver.command(spec) or ())
    here = LaunchSpec(model="m", path="/m", port=5000)
    assert "--host 127.0.0.1 --port 5000" in " ".join(driver.command(here) or ())


def test_sglang_on_two_machines_has_ranks() -> None:
    spec = LaunchSpec(model="m", path="/m", port=1, bind="b", nodes=2, node_rank=1, meet_at="a:9")
    assert "--nnodes 2 --node-rank 1 --dist-init-addr a:9" in " ".join(SglangDriver().command(spec) or ())


def test_llamacpp_names_every_file_that_it_reads() -> None:
    options = LlamaCppOptions(mmproj="/p")
    spec = LaunchSpec(model="m", path="/a-00001-of-00002.gguf", port=1, options=options)
    assert LlamaCppDriver().files(spec) == ["/a-00001-of-00002.gguf", "/a-00002-of-00002.gguf", "/p"]
