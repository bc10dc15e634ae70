"""The ``sglang`` driver, on a server that answers as SGLang's documentation says, and on a real one if there is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from enginehouse import Capabilities, ServedModel
from enginehouse.testing import HttpEngineClient, check_driver
from enginehouse_sglang import SglangDriver
from enginehouse_sglang.options import SglangOptions
from tests.support.fake_sglang import MODEL, FakeSglang

REAL = "ENGINEHOUSE_TEST_SGLANG"
"""The address of a real server: ``python -m sglang.launch_server --enable-metrics --enable-memory-saver ...``."""


@pytest.fixture(params=[False, True], ids=["new", "old"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeSglang]:
    with FakeSglang(old=request.param) as server:
        yield server


def test_the_driver_passes_the_check_on_documented_answers(server: FakeSglang) -> None:
    check_driver(SglangDriver, server.url, MODEL)


async def test_models_are_listed_with_what_they_can_do(server: FakeSglang) -> None:
    known = Capabilities(context_length=4096, vision=False, embeddings=False)
    assert list(await SglangDriver().models(HttpEngineClient(server.url))) == [ServedModel(MODEL, known)]


async def test_memory_is_released_and_resumed(server: FakeSglang) -> None:
    engine, driver = HttpEngineClient(server.url), SglangDriver()
    assert await driver.sleep(engine)
    assert not await driver.healthy(engine)
    assert await driver.wake(engine)
    assert await driver.healthy(engine)
    assert server.asked == ["/release_memory_occupation", "/resume_memory_occupation"]


def test_prefill_and_decode_servers_are_told_apart_by_options() -> None:
    """https://docs.sglang.io/advanced_features/pd_disaggregation.html."""
    names = SglangOptions.__struct_fields__
    assert [name for name in names if name.startswith("disaggregation")] == [
        "disaggregation_mode",
        "disaggregation_bootstrap_port",
        "disaggregation_transfer_backend",
        "disaggregation_ib_device",
    ]


@pytest.mark.skipif(REAL not in os.environ, reason=f"{REAL} names no server")
def test_a_real_server() -> None:
    url, driver = os.environ[REAL], SglangDriver()
    engine = HttpEngineClient(url)
    [model, *_] = asyncio.run(driver.models(engine))
    assert model.capabilities.context_length
    check_driver(SglangDriver, url, model.name)
    status = asyncio.run(driver.status(engine))
    if status is not None:
        assert status.num_total_gpu_tokens >= status.num_used_gpu_tokens
    if asyncio.run(driver.sleep(engine)):
        assert asyncio.run(driver.wake(engine))
        check_driver(SglangDriver, url, model.name)
