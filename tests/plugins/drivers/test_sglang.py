"""The ``sglang`` driver, on a server that answers as SGLang's documentation says, and on a real one if there is one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from enginehouse import Capabilities, Role
from enginehouse.drivers import LaunchSpec, PartialAnswer, ServedModel
from enginehouse.errors import UpstreamError
from enginehouse_kit.testing import HttpEngineClient, check_driver
from enginehouse_sglang import SglangDriver
from enginehouse_sglang.options import SglangOptions
from tests.support.fake_engines import FakeClient
from tests.support.fake_sglang import MODEL, FakeSglang

REAL = "ENGINEHOUSE_TEST_SGLANG"
"""The address of a real server: ``python -m sglang.launch_server --enable-metrics --enable-memory-saver ...``."""
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(params=[False, True], ids=["new", "old"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeSglang]:
    with FakeSglang(old=request.param) as server:
        yield server
        assert not server.crashed


def test_the_driver_passes_the_check_on_documented_answers(server: FakeSglang) -> None:
    check_driver(SglangDriver, server.url, MODEL)


async def test_models_are_listed_with_what_they_can_do(server: FakeSglang) -> None:
    known = Capabilities(context_length=4096, vision=False, embeddings=False)
    assert list(await SglangDriver().models(HttpEngineClient(server.url))) == [ServedModel(MODEL, known)]


async def test_its_limit_is_known(server: FakeSglang) -> None:
    assert await SglangDriver().concurrency(HttpEngineClient(server.url)) == 128


async def test_the_limits_of_data_parallel_ranks_add_up() -> None:
    state = {"effective_max_running_requests_per_dp": 64}
    assert await SglangDriver().concurrency(FakeClient({"/server_info": {"internal_states": [state, state]}})) == 128
    assert await SglangDriver().concurrency(FakeClient({"/server_info": {}})) is None


async def test_memory_is_released_and_resumed(server: FakeSglang) -> None:
    engine, driver = HttpEngineClient(server.url), SglangDriver()
    assert await driver.sleep(engine)
    assert server.asleep
    assert await driver.wake(engine)
    assert await driver.healthy(engine)
    assert server.asked[-1] == "/resume_memory_occupation"


async def test_what_still_runs_is_aborted_before_memory_is_released(server: FakeSglang) -> None:
    """A real server crashes otherwise. It notices a client that left after two seconds."""
    engine = HttpEngineClient(server.url)
    body = b'{"model": "m", "messages": [], "stream": true, "max_tokens": 100000}'
    began = threading.Event()

    def read() -> bytes:
        connection, response = engine.open("POST", CHAT, body)
        try:
            response.readline()
            began.set()
            return response.read()
        finally:
            connection.close()

    reading = asyncio.create_task(asyncio.to_thread(read))
    await asyncio.to_thread(began.wait)
    assert await SglangDriver().sleep(engine)
    assert b"[DONE]" not in await reading


async def test_a_server_that_stays_busy_is_not_put_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse_sglang.driver._PAUSE_S", 0)
    engine = FakeClient({"/abort_request": {}, "/flush_cache": 400, "/release_memory_occupation": {}})
    assert not await SglangDriver().sleep(engine)
    assert "/release_memory_occupation" not in engine.asked


def test_an_engine_that_is_to_sleep_keeps_a_copy_of_its_weights() -> None:
    """Without it, memory that is resumed has weights of any value."""
    line = SglangDriver().command(LaunchSpec(model="m", path="/m", port=1, sleep=True)) or ()
    assert {"--enable-memory-saver", "--enable-weights-cpu-backup"} <= set(line)
    line = SglangDriver().command(LaunchSpec(model="m", path="/m", port=1)) or ()
    assert not {"--enable-memory-saver", "--enable-weights-cpu-backup"} & set(line)


def test_a_chat_that_streams_is_not_asked_for_its_tokens() -> None:
    """A real server refuses that."""
    chat, completion = b'{"messages": [], "stream": true}', b'{"prompt": "a", "stream": true}'
    assert SglangDriver().continuable(CHAT, chat) is chat
    assert b'"return_token_ids":true' in SglangDriver().continuable(COMPLETIONS, completion)


@pytest.mark.parametrize(("limit", "path"), [({"max_tokens": 9}, COMPLETIONS), ({}, CHAT)])
def test_a_chat_that_comes_from_another_engine_goes_on(limit: dict[str, int], path: str) -> None:
    """By its tokens if it has a limit, which ``/v1/completions`` needs. As a chat, it is not asked for tokens."""
    body = msgspec.json.encode({"model": "m", "messages": [], "stream": True, **limit})
    prompt = msgspec.Raw(b"[7]")
    answer = PartialAnswer(path=CHAT, body=body, text=" one", tokens=1, ids=[1], prompt_ids=prompt)
    made = SglangDriver().continuation(answer)
    assert (made.path, made.exact) == (path, path == COMPLETIONS)
    assert (b"return_token_ids" in made.body) == (path == COMPLETIONS)


def test_prefill_and_decode_servers_are_told_apart_by_options() -> None:
    """https://docs.sglang.io/advanced_features/pd_disaggregation.html, and ``arg_groups/fields/disagg.py``."""
    names = SglangOptions.__struct_fields__
    assert [name for name in names if name.startswith("disaggregation")] == [
        "disaggregation_mode",
        "disaggregation_bootstrap_port",
        "disaggregation_transfer_backend",
        "disaggregation_ib_device",
    ]


@pytest.mark.parametrize(("role", "mode"), [(Role.PREFILL, ["prefill"]), (Role.DECODE, ["decode"]), (Role.NEUTRAL, [])])
def test_an_engine_with_a_role_is_launched_for_it(role: Role, mode: list[str]) -> None:
    line = list(SglangDriver().command(LaunchSpec(model="m", path="/m", port=1, role=role)) or ())
    assert [after for word, after in pairwise(line) if word == "--disaggregation-mode"] == mode


def test_the_mode_in_the_options_counts() -> None:
    spec = LaunchSpec(model="m", path="/m", port=1, role=Role.DECODE, options=SglangOptions(disaggregation_mode="null"))
    assert [word for word in SglangDriver().command(spec) or () if word == "--disaggregation-mode"] == [
        "--disaggregation-mode"
    ]


@pytest.mark.parametrize(
    ("information", "port"),
    [({"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 9001}, 9001), ({}, None)],
)
async def test_the_bootstrap_port_is_read(information: dict[str, object], port: int | None) -> None:
    """A server that does not tell it leaves it to the other one, as in SGLang's router."""
    assert await SglangDriver().bootstrap_port(FakeClient({"/server_info": information})) == port


@pytest.mark.parametrize("mode", ["null", "decode"])
async def test_a_server_that_reads_no_prompts_for_others_has_none(mode: str) -> None:
    with pytest.raises(UpstreamError, match=f"--disaggregation-mode {mode}"):
        await SglangDriver().bootstrap_port(FakeClient({"/server_info": {"disaggregation_mode": mode}}))


@pytest.mark.parametrize(("host", "named"), [("10.0.0.3", "10.0.0.3"), ("::1", "[::1]")])
def test_both_servers_are_told_where_to_meet(host: str, named: str) -> None:
    """What a client sent under these names is replaced."""
    body = b'{"model":"m","prompt":"say \\"bootstrap_room\\"","bootstrap_room":7,"temperature":1e0}'
    made = msgspec.json.decode(SglangDriver().bootstrap(body, host, None))
    room = made.pop("bootstrap_room")
    assert made == {
        "model": "m",
        "prompt": 'say "bootstrap_room"',
        "temperature": 1.0,
        "bootstrap_host": named,
        "bootstrap_port": None,
    }
    assert room != 7
    assert 0 <= room < 2**63


@pytest.mark.parametrize(
    ("flags", "order"),
    [
        ({}, 0),
        ({"enable_priority_scheduling": True}, 1),
        ({"enable_priority_scheduling": True, "schedule_low_priority_values_first": True}, -1),
        ({"schedule_low_priority_values_first": True}, 0),
    ],
)
async def test_the_order_of_priorities_is_read(flags: dict[str, bool], order: int) -> None:
    """``arg_groups/fields/schedule.py``: higher values come first by default."""
    assert await SglangDriver().priority_order(FakeClient({"/server_info": flags})) == order
    assert await SglangDriver().priority_order(FakeClient({})) == 0


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
