from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import msgspec
import pytest

from enginehouse.drivers import EngineResponse
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.engines import SimEngine
from enginehouse_sim import SimDriver
from tests.support import plain_httpx as http

Post = Callable[..., Any]
Eventually = Callable[[Callable[[], bool]], bool]

COUNTERS = {
    *("prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total", "prompt_tokens_total"),
    *("generation_tokens_total", "request_success_total", "external_prefix_cache_queries_total"),
    *("external_prefix_cache_hits_total", "prompt_tokens_cached_total", "spec_decode_num_drafts_total"),
    *("spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"),
}
GAUGES = {
    *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "engine_sleep_state"),
    "cache_config_info",
}
HISTOGRAMS = {
    *("time_to_first_token_seconds", "inter_token_latency_seconds"),
    *("e2e_request_latency_seconds", "request_queue_time_seconds"),
    "iteration_tokens_total",
}


@pytest.fixture(scope="module")
def slow_engine() -> Iterator[SimEngine]:
    """An engine with room for one request at a time, which it takes its time for."""
    flags = {"instance_id": "gpu-7", "node": "n1", "unit": "u1", "role": "decode"}
    with SimEngine(
        "tiny", tpot="200ms", concurrency=1, block_size=4, num_gpu_blocks=101, context_length=300, **flags
    ) as engine:
        yield engine


def status(engine: SimEngine) -> Any:
    return http.get(f"{engine.url}/instance_status").json()


def ask_and_leave(engine: SimEngine, number: int) -> HTTPConnection:
    """Ask for a long answer and do not read it."""
    connection = HTTPConnection("127.0.0.1", engine.port)
    body = {"model": "tiny", "prompt": "one two three four five six", "max_tokens": 250}
    connection.request("POST", "/v1/completions", msgspec.json.encode(body), {"x-request-id": f"r{number}"})
    return connection


@pytest.mark.parametrize(
    "field", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -2}, {"min_p": 2}, {"presence_penalty": 3}]
)
def test_sampling_parameters_outside_of_their_limits_are_refused(engine: SimEngine, field: dict[str, float]) -> None:
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 3, **field}
    answer = http.post(f"{engine.url}/v1/completions", json=body)
    assert (answer.status_code, next(iter(field)) in answer.json()["error"]["message"]) == (400, True)


def test_metrics_have_the_names_that_vllm_gives_them(engine: SimEngine, post: Post) -> None:
    post("/v1/completions", prompt="hello", max_tokens=3)
    page = http.get(f"{engine.url}/metrics").text
    kinds: dict[str, set[str]] = {"counter": set(), "gauge": set(), "histogram": set()}
    for name, kind in re.findall(r"# TYPE vllm:(\w+) (\w+)", page):
        kinds[kind].add(name)
    assert kinds == {"counter": COUNTERS, "gauge": GAUGES, "histogram": HISTOGRAMS}


def test_speculation_is_counted_where_there_is_any() -> None:
    with SimEngine("tiny", num_spec_tokens=3, draft_acceptance="0.5") as engine:
        http.post(f"{engine.url}/v1/completions", json={"model": "tiny", "prompt": "x", "max_tokens": 100})
        drafted = engine.metric("spec_decode_num_draft_tokens_total")
        assert 0 < engine.metric("spec_decode_num_accepted_tokens_total") < drafted
        assert engine.metric("spec_decode_num_drafts_total") >= drafted / 3


def test_the_prefix_cache_is_counted_and_can_be_reset(engine: SimEngine, post: Post) -> None:
    def ask() -> float:
        post("/v1/completions", prompt="one two three four five", max_tokens=1)
        return engine.metric("prefix_cache_hits_total")

    before = ask()
    assert ask() == before + 4
    assert post("/reset_prefix_cache") == {"success": True}
    assert ask() == before + 4


def test_the_status_has_all_of_llumnix_fields_and_says_where_it_is(slow_engine: SimEngine) -> None:
    told = status(slow_engine)
    fields = set(InstanceStatus.__struct_fields__)
    assert len(fields - {"active_loras", "max_loras"}) == 40
    assert fields <= told.keys()
    metadata = {name: value for name, value in told.items() if name not in fields or name == "instance_id"}
    assert metadata == {
        "instance_id": "gpu-7",
        "instance_type": "decode",
        "backend_type": "sim",
        "node_id": "n1",
        "unit_id": "u1",
        "data_parallel_size": 1,
        "tensor_parallel_size": 1,
        "block_size": 4,
        "max_num_batched_tokens": 8192,
        "ip": "",
        "llumlet_port": 0,
        "kvt_port": 0,
    }


def test_an_instance_without_a_name_is_named_by_its_address(engine: SimEngine) -> None:
    assert status(engine)["instance_id"] == f"127.0.0.1:{engine.port}"


def test_the_status_follows_requests(slow_engine: SimEngine, eventually: Eventually) -> None:
    idle = status(slow_engine)
    assert (idle["num_total_gpu_tokens"], idle["num_used_gpu_tokens"]) == (400, 0)
    running = ask_and_leave(slow_engine, 1)
    assert eventually(lambda: status(slow_engine)["num_running_requests"] == 1)
    waiting = ask_and_leave(slow_engine, 2)
    # The first block of four tokens is cached.
    assert eventually(lambda: status(slow_engine)["num_uncomputed_tokens_all_waiting_prefills"] == 2)
    assert eventually(lambda: status(slow_engine)["step_id"] > idle["step_id"])
    busy = status(slow_engine)
    assert busy["waiting_requests"] == ["cmpl-r2"]
    assert {"cmpl-r1", "cmpl-r2"} <= set(busy["recent_waiting_requests"])
    assert busy["num_used_gpu_tokens"] >= 8
    assert busy["scheduler_running_to_decode_requests_num"] == 1
    assert busy["scheduler_running_to_decode_tokens_num"] > 6
    assert busy["num_uncomputed_tokens_scheduler_running_prefills"] == 0
    assert busy["num_waiting_requests"] == 1
    assert (busy["scheduler_waiting_to_decode_requests_num"], busy["scheduler_waiting_to_decode_tokens_num"]) == (1, 6)
    assert busy["update_id"] > idle["update_id"]
    assert busy["step_duration"] == pytest.approx(200)
    assert busy["schedulable"]
    for connection in (running, waiting):
        connection.close()
    assert eventually(lambda: status(slow_engine)["num_running_requests"] == 0)
    assert status(slow_engine)["num_used_gpu_tokens"] == 0


def test_it_sleeps_and_wakes_with_its_memory_given_back(slow_engine: SimEngine, eventually: Eventually) -> None:
    url = slow_engine.url
    running = ask_and_leave(slow_engine, 3)
    assert eventually(lambda: slow_engine.metric("kv_cache_usage_perc") > 0)
    assert http.post(f"{url}/sleep?level=2").status_code == 200
    assert http.get(f"{url}/is_sleeping").json() == {"is_sleeping": True}
    assert http.get(f"{url}/health").status_code == 200
    assert slow_engine.metric("engine_sleep_state", sleep_state="discard_all") == 1
    assert slow_engine.metric("kv_cache_usage_perc") == 0
    assert not status(slow_engine)["schedulable"]
    aborted = msgspec.json.decode(running.getresponse().read())
    assert aborted["choices"][0]["finish_reason"] == "abort"
    waiting = ask_and_leave(slow_engine, 4)
    assert eventually(lambda: slow_engine.metric("num_requests_waiting") == 1)
    assert http.post(f"{url}/wake_up").status_code == 200
    assert http.get(f"{url}/is_sleeping").json() == {"is_sleeping": False}
    assert eventually(lambda: slow_engine.metric("num_requests_running") == 1)
    for connection in (running, waiting):
        connection.close()
    assert eventually(lambda: slow_engine.running() == 0)


def test_there_are_two_depths_of_sleep(slow_engine: SimEngine) -> None:
    assert http.post(f"{slow_engine.url}/sleep?level=3").status_code == 400
    assert http.get(f"{slow_engine.url}/is_sleeping").json() == {"is_sleeping": False}


async def test_the_driver_puts_it_to_sleep_and_wakes_it(engine: SimEngine) -> None:
    class Real:
        async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
            async with http.AsyncClient(base_url=engine.url) as client:
                answer = await client.request(method, path, content=body)
            return EngineResponse(answer.status_code, [], answer.content)

    assert await SimDriver().sleep(Real())
    assert engine.metric("engine_sleep_state", sleep_state="weights_offloaded") == 1
    assert await SimDriver().wake(Real())
    assert engine.metric("engine_sleep_state", sleep_state="awake") == 1


def test_embeddings_have_no_more_dimensions_than_there_are(post: Post) -> None:
    refused = post("/v1/embeddings", 400, input="x", dimensions=65)
    assert "64 dimensions" in refused["error"]["message"]
