from __future__ import annotations

from typing import Any

import pytest

from enginehouse.rescheduling import RequestView
from enginehouse_rescheduling.latency import Grid, LatencyPredictor
from enginehouse_rescheduling.metrics import LARGEST, METRICS, Circumstances, PromptFigures, float32
from tests.support.cluster_views import NOW_MS, instance

INFLIGHT = {
    "num_inflight_dispatch_requests": 3,
    "num_inflight_dispatch_prefill_requests": 2,
    "num_inflight_dispatch_decode_requests": 1,
    "num_uncomputed_tokens_inflight_dispatch_prefill_requests": 70,
    "num_tokens_inflight_dispatch_decode_requests": 50,
}
STATUS = {
    "num_waiting_requests": 5,
    "num_loading_requests": 7,
    "num_running_requests": 11,
    "hybrid_scheduler_waiting_to_decode_requests_num": 13,
    "scheduler_waiting_to_decode_requests_num": 17,
    "scheduler_running_to_decode_requests_num": 19,
    "num_used_gpu_tokens": 400,
    "num_uncomputed_tokens_all_waiting_prefills": 100,
    "num_uncomputed_tokens_scheduler_running_prefills": 30,
    "num_unallocated_tokens_scheduler_running_prefills": 20,
    "num_unallocated_tokens_hybrid_scheduler_waiting_decodes": 10,
    "hybrid_scheduler_waiting_to_decode_tokens_num": 1,
    "scheduler_waiting_to_decode_tokens_num": 2,
    "scheduler_running_to_decode_tokens_num": 4,
    "num_tokens_loading_requests": 8,
}
REQUESTS = (RequestView(id="a", prompt_tokens=10, output_tokens=5), RequestView(id="b", prompt_tokens=7, running=False))
FULL: dict[str, Any] = {**STATUS, **INFLIGHT, "requests": REQUESTS}
NO_PROMPT = PromptFigures()
PROMPT = PromptFigures(tokens=40, computed=25, cached=12, missing=28)
INFINITY = float("inf")


def value(name: str, prompt: PromptFigures = NO_PROMPT, latency: Any = None, **fields: Any) -> float:
    metric = METRICS[name]
    load = metric.load(instance("i", **fields), Circumstances(NOW_MS, latency, prompt))
    return -load if metric.larger_is_better else load


@pytest.mark.parametrize(
    ("name", "expected", "for_a_request"),
    [
        ("kv_cache_usage_ratio_projected", float32(0.58), float32(0.58)),
        ("decode_batch_size", 57, 57),
        ("num_waiting_requests", 8, 8),
        ("all_prefills_tokens_num", 200, 175),
        ("all_decodes_tokens_num", 65, 65),
        ("num_requests", 26, 26),
        ("num_tokens", 22, 22),
        ("kv_cache_hit_len", 0, 12),
        ("cache_aware_all_prefills_tokens_num", 200, 203),
    ],
)
def test_each_metric_counts_every_term(name: str, expected: float, for_a_request: float) -> None:
    assert value(name, **FULL) == expected
    assert value(name, PROMPT, **FULL) == for_a_request


def test_there_are_eleven_metrics() -> None:
    assert len(METRICS) == 11


def test_a_cache_of_unknown_size_is_fuller_than_any() -> None:
    assert value("kv_cache_usage_ratio_projected", num_total_gpu_tokens=0) == LARGEST == 3.4028234663852886e38


def test_more_than_the_whole_cache_can_be_needed() -> None:
    assert value("kv_cache_usage_ratio_projected", num_used_gpu_tokens=1500) == 1.5


def test_a_longer_hit_is_less_load() -> None:
    hit, miss = Circumstances(NOW_MS, None, PROMPT), Circumstances(NOW_MS)

    assert METRICS["kv_cache_hit_len"].load(instance("i"), hit) < METRICS["kv_cache_hit_len"].load(instance("i"), miss)


@pytest.fixture
def latency() -> LatencyPredictor:
    """A prompt takes a millisecond per token. A decode step takes one per request and a hundredth per token of one."""
    prompts = Grid({(tokens, 0.0): float(tokens) for tokens in (1, 10_000)})
    decodes = Grid({(batch, length): batch + length / 100 for batch in (1, 100) for length in (8, 1000)})
    return LatencyPredictor(prompts, decodes)


@pytest.mark.parametrize(
    ("requests", "tokens", "prompt", "expected"),
    [
        (0, 0, 0, 0),  # nothing decodes
        (9, 1000, 0, 10 + 1.0),  # one request more than there are
        (9, 1000, 500, 10 + 1.5),  # the request's own prompt counts
        (9, 20, 0, 10 + 0.08),  # 8 tokens each at least
        (100, 5000, 0, INFINITY),  # beyond the profile
        (1, 5000, 0, INFINITY),
    ],
)
def test_the_predicted_time_per_output_token(
    latency: LatencyPredictor, requests: int, tokens: int, prompt: int, expected: float
) -> None:
    fields = {
        "scheduler_running_to_decode_requests_num": requests,
        "scheduler_running_to_decode_tokens_num": tokens,
    }
    assert value("predicted_tpot", PromptFigures(tokens=prompt), latency, **fields) == float32(expected)


@pytest.mark.parametrize(
    ("age_ms", "waiting", "running", "sent", "prompt", "expected"),
    [
        (100, 0, 0, 0, 300, 300),  # idle
        (100, 400, 100, 50, 300, 400 + 100 + 50 + 300 - 100),  # behind what it had, less what it did since
        (501, 400, 100, 50, 300, 50 + 300),  # it has computed what it had
        (500, 400, 100, 0, 0, 0),  # exactly done
    ],
)
def test_the_predicted_time_to_first_token(
    latency: LatencyPredictor, age_ms: int, waiting: int, running: int, sent: int, prompt: int, expected: float
) -> None:
    fields: dict[str, Any] = {
        "timestamp_ms": NOW_MS - age_ms,
        "num_uncomputed_tokens_all_waiting_prefills": waiting,
        "num_uncomputed_tokens_scheduler_running_prefills": running,
        "num_uncomputed_tokens_inflight_dispatch_prefill_requests": sent,
    }
    assert value("predicted_ttft", PromptFigures(tokens=prompt), latency, **fields) == expected


def test_each_step_of_a_prompt_computes_the_decodes_too(latency: LatencyPredictor) -> None:
    fields = {
        "max_num_batched_tokens": 100,
        "scheduler_running_to_decode_requests_num": 10,
        "scheduler_running_to_decode_tokens_num": 1000,
    }
    assert value("predicted_ttft", PromptFigures(tokens=250), latency, timestamp_ms=NOW_MS, **fields) == 250 + 3 * 11


def test_beyond_the_profile_no_first_token_comes(latency: LatencyPredictor) -> None:
    assert value("predicted_ttft", PromptFigures(tokens=20_000), latency) == INFINITY
    decodes: dict[str, Any] = {
        "scheduler_running_to_decode_requests_num": 200,
        "scheduler_running_to_decode_tokens_num": 2000,
    }
    assert value("predicted_ttft", latency=latency, **decodes) == INFINITY


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [(0, 0, 0), (1, 10, 1), (2, 10, 1.5), (1, 15, 3), (2, 15, 3.5), (3, 20, 6), (4, 10, INFINITY), (2, 9, INFINITY)],
)
def test_a_grid_interpolates_and_never_extrapolates(row: float, column: float, expected: float) -> None:
    assert Grid({(1, 10): 1, (3, 10): 2, (1, 20): 5, (3, 20): 6}).value(row, column) == expected


def test_a_grid_with_a_hole_has_no_value_beside_it() -> None:
    grid = Grid({(1, 10): 1, (3, 10): 2, (1, 20): 5})

    assert grid.value(1, 15) == 3
    assert grid.value(2, 10) == 1.5
    assert grid.value(2, 15) == INFINITY


@pytest.mark.parametrize(
    ("number", "single"), [(0.1, 0.10000000149011612), (50 * 0.95, 47.5), (1e300, INFINITY), (-1e300, -INFINITY)]
)
def test_numbers_in_single_precision(number: float, single: float) -> None:
    assert float32(number) == single
