"""The load of engines under Llumnix's names, from the pages that they serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from enginehouse.drivers import SupportsFigures
from enginehouse.errors import UpstreamError
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.testing import HttpEngineClient
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_openai import OpenAIDriver
from enginehouse_sglang import SglangDriver
from enginehouse_sim import SimDriver
from enginehouse_vllm import VllmDriver
from tests.support.fake_engines import FakeClient

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.5
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100",num_cpu_blocks="None"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100",num_cpu_blocks="None"} 1.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="weights_offloaded"} 0.0
"""
SGLANG = b"""\
sglang:num_running_reqs{model_name="m"} 5.0
sglang:num_queue_reqs{model_name="m"} 2.0
sglang:num_used_tokens{model_name="m"} 1200.0
sglang:token_usage{model_name="m"} 0.3
"""
LLAMACPP = b"""\
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
llamacpp:requests_deferred 12
"""
SLOTS: list[dict[str, Any]] = [
    {"id": 0, "n_ctx": 2048, "is_processing": False, "n_prompt_tokens": 900},
    {"id": 1, "n_ctx": 2048, "is_processing": True, "n_prompt_tokens": 40, "next_token": [{"n_decoded": 9}]},
    {
        "id": 2,
        "n_ctx": 2048,
        "is_processing": True,
        "n_prompt_tokens": 700,
        "n_prompt_tokens_processed": 256,
        "n_prompt_tokens_cache": 100,
        "next_token": [{"n_decoded": 0}],
    },
]


def _figures(status: InstanceStatus | None) -> dict[str, int]:
    """The figures that are not 0, but for the moment and for the twins of others."""
    assert status is not None
    assert status.timestamp_ms
    assert status.scheduler_running_to_decode_requests_num == status.num_running_requests
    assert status.scheduler_waiting_to_decode_requests_num == status.num_waiting_requests
    known = {name: value for name, value in msgspec.structs.asdict(status).items() if value}
    return {name: value for name, value in known.items() if not name.endswith(("_ms", "to_decode_requests_num"))}


@pytest.mark.parametrize(
    ("driver", "pages", "figures"),
    [
        (
            VllmDriver(),
            {"/metrics": VLLM},
            {
                "schedulable": True,
                "num_running_requests": 5,
                "num_waiting_requests": 7,
                "num_total_gpu_tokens": 3200,
                "num_used_gpu_tokens": 1200,
            },
        ),
        (
            SglangDriver(),
            {"/metrics": SGLANG},
            {
                "schedulable": True,
                "num_running_requests": 5,
                "num_waiting_requests": 2,
                "num_total_gpu_tokens": 4000,
                "num_used_gpu_tokens": 1200,
            },
        ),
        (
            LlamaCppDriver(),
            {"/metrics": LLAMACPP, "/slots": SLOTS},
            {
                "schedulable": True,
                "num_running_requests": 2,
                "num_waiting_requests": 12,
                "num_total_gpu_tokens": 6144,
                "num_used_gpu_tokens": 740,
                "num_uncomputed_tokens_scheduler_running_prefills": 344,
            },
        ),
        (LlamaCppDriver(), {"/metrics": LLAMACPP, "/slots": 501}, {"schedulable": True, "num_running_requests": 2}),
    ],
    ids=["vllm", "sglang", "llamacpp", "llamacpp --no-slots"],
)
async def test_figures_are_read_from_the_engines_pages(
    driver: SupportsFigures, pages: Mapping[str, Any], figures: Mapping[str, Any]
) -> None:
    assert _figures(await driver.status(FakeClient(pages))).items() >= figures.items()


@pytest.mark.parametrize("groups", [1, 2])
async def test_an_sglang_with_several_ranks_counts_its_requests_once(groups: int) -> None:
    """Each process of a group with tensor parallelism may report the requests on which all of them work."""
    lines = [
        line.replace(b'"}', b'",tp_rank="%d",dp_rank="%d"}' % (tp, dp))
        for tp in range(4)
        for dp in range(groups)
        for line in SGLANG.splitlines()
    ]
    alone = _figures(await SglangDriver().status(FakeClient({"/metrics": SGLANG})))
    several = _figures(await SglangDriver().status(FakeClient({"/metrics": b"\n".join(lines)})))
    assert several == {name: value * groups if name != "schedulable" else value for name, value in alone.items()}


async def test_a_vllm_that_tells_its_cache_under_two_names_counts_it_once() -> None:
    """Those of 0.9 and 0.10 do."""
    both = VLLM + b"".join(
        line.replace(b":kv_", b":gpu_") + b"\n" for line in VLLM.splitlines() if line.startswith(b"vllm:kv_")
    )
    for page in (both, VLLM.replace(b":kv_", b":gpu_")):
        assert _figures(await VllmDriver().status(FakeClient({"/metrics": page})))["num_used_gpu_tokens"] == 1200


async def test_a_figure_that_is_no_number_counts_as_nothing() -> None:
    page = VLLM.replace(b'"} 0.25', b'"} +Inf').replace(b'"} 0.5', b'"} NaN')
    assert _figures(await VllmDriver().status(FakeClient({"/metrics": page}))).get("num_used_gpu_tokens", 0) == 0


async def test_a_vllm_that_sleeps_takes_no_requests() -> None:
    page = VLLM.replace(b'"awake"} 1.0', b'"awake"} 0.0').replace(b'offloaded"} 0.0', b'offloaded"} 1.0')
    status = await VllmDriver().status(FakeClient({"/metrics": page}))
    assert status is not None
    assert not status.schedulable


@pytest.mark.parametrize(
    ("driver", "pages"),
    [
        (OpenAIDriver(), {}),
        (SglangDriver(), {}),
        (LlamaCppDriver(), {"/metrics": 400, "/slots": 400}),
    ],
)
async def test_an_engine_that_shows_no_figures_has_no_status(driver: SupportsFigures, pages: Mapping[str, Any]) -> None:
    assert await driver.status(FakeClient(pages)) is None


@pytest.mark.parametrize("page", [500, b"vllm:num_requests_running{} many\n"])
async def test_a_page_that_is_not_understood_is_an_error(page: Any) -> None:
    with pytest.raises(UpstreamError):
        await VllmDriver().status(FakeClient({"/metrics": page}))


async def test_llumnix_names_are_read_as_they_are() -> None:
    page = {"instance_id": "a", "num_running_requests": 4, "a_field_of_tomorrow": 1}
    assert await OpenAIDriver().status(FakeClient({"/instance_status": page})) == InstanceStatus(
        instance_id="a", num_running_requests=4
    )


async def test_the_simulated_engine_tells_the_same_in_both_ways() -> None:
    with SimEngine("tiny", num_gpu_blocks=101, block_size=4) as engine:
        own = await SimDriver().status(HttpEngineClient(engine.url))
        as_vllm = await VllmDriver().status(HttpEngineClient(engine.url))
    assert own is not None
    assert as_vllm is not None
    assert own.num_total_gpu_tokens == 400  # one block is never used
    assert as_vllm.num_total_gpu_tokens in (400, 404)
    assert (own.num_running_requests, as_vllm.num_running_requests) == (0, 0)


async def test_vllm_tells_its_adapters() -> None:
    page = b"""\
vllm:num_requests_running{engine="0"} 1.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1000.5
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="sql,law"} 1001.5
"""
    status = await VllmDriver().status(FakeClient({"/metrics": page}))
    assert status is not None
    assert (status.active_loras, status.max_loras) == (("sql", "chat", "law"), 4)
