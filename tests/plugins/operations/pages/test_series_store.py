"""Figures over time: what is counted in which bucket, and how much is kept."""

from __future__ import annotations

import tracemalloc
from math import inf

import pytest

from enginehouse import InvalidRequest
from enginehouse.telemetry.counters import BUCKETS, Counters, KeyCounts
from enginehouse.telemetry.model_totals import model_totals
from enginehouse_operations.pages.series import (
    WHOLE,
    BucketRing,
    SeriesAnswer,
    SeriesKey,
    SeriesStore,
    quantile,
    read_series,
)
from tests.support.page_facts import page_facts

START = 1_000_020.0


class Sampled:
    """A store that is sampled once a second of its own clock."""

    def __init__(self) -> None:
        self.now = START
        self.counters = Counters()
        self.gauges: list[tuple[str, str, str, float]] = []
        self.store = SeriesStore()
        self.facts = page_facts(
            epoch=lambda: self.now, totals=lambda: model_totals(self.counters), gauges=lambda: self.gauges
        )

    def request(self, model: str, *, backend: str = "gpu", status: int = 200, first_token: float = 0.02) -> None:
        """Count a request with 100 prompt tokens, 40 of them cached, and 20 of its answer."""
        series = self.counters.series(backend, model)
        counts = series.keys.setdefault("", KeyCounts())
        counts.requests[status, "match"] += 1
        counts.input_tokens += 100
        counts.cached_tokens += 40
        counts.from_usage += 20
        series.duration.observe(first_token + 1)
        series.first_byte.observe(first_token)
        series.first_token.observe(first_token)
        series.inter_token.observe(1.0 / 19)

    def pass_(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.store.sample(self.facts)

    def read(self, metric: str, by: str = "", since: float = 0.0, step: int | None = None) -> SeriesAnswer:
        return read_series(self.store, metric, by, since, step)  # type: ignore[arg-type]

    def values(self, metric: str, by: str = "", name: str = "", step: int = 1) -> list[float | None]:
        answer = self.read(metric, by, START, step)
        return next(each.values for each in answer.series if each.labels == ({by: name} if by else {}))


def test_a_second_has_the_rates_of_the_requests_that_ended_in_it() -> None:
    sampled = Sampled()
    sampled.request("a")
    sampled.request("b", status=502)
    sampled.pass_(1)
    sampled.request("a")
    sampled.pass_(2)
    assert sampled.values("requests") == [2, 1, 0]
    assert sampled.values("requests", "model", "a") == [1, 1, 0]
    assert sampled.values("failed", "model", "b") == [1, 0, 0]
    assert sampled.values("tokens_in", "backend", "gpu") == [200, 100, 0]
    assert sampled.values("tokens_out") == [40, 20, 0]
    assert sampled.values("cached_ratio") == pytest.approx([0.4, 0.4, None])


def test_requests_without_an_attempt_count_for_the_whole_gateway() -> None:
    sampled = Sampled()
    for status in (401, 404, 429, 499, 503):
        sampled.counters.end_unrouted(status)
    sampled.pass_(1)
    assert (sampled.values("requests"), sampled.values("failed")) == ([5], [1])


def test_refusals_and_clients_that_left_have_not_failed() -> None:
    sampled = Sampled()
    for status in (200, 400, 404, 429, 499, 500, 502, 504):
        sampled.request("a", status=status)
    sampled.pass_(1)
    assert (sampled.values("requests"), sampled.values("failed", "model", "a")) == ([8], [3])
    assert (sampled.values("refused", "model", "a"), sampled.values("left")) == ([3], [1])


def test_a_minute_has_the_rates_and_percentiles_of_all_its_requests() -> None:
    sampled = Sampled()
    sampled.now += 59  # a second of the last minute
    sampled.pass_(1)
    for second in range(60):
        sampled.request("a", first_token=0.02 if second else 4.0)
        sampled.pass_(1)
    sampled.pass_(1)
    assert sampled.values("requests", step=60)[-1] == 1
    assert sampled.values("ttft_ms_p50", step=60)[-1] == pytest.approx(17.5, abs=0.5)
    assert 2500 <= (sampled.values("ttft_ms_p99", step=60)[-1] or 0) <= 5000


def test_memory_is_that_of_hosts_and_gpus() -> None:
    sampled = Sampled()
    sampled.gauges = [("host_memory", "host", "local", 5), ("gpu_memory", "gpu", "local:0", 7)]
    sampled.pass_(1)
    assert [(each.labels, each.values) for each in sampled.read("host_memory", "", START, 1).series] == [
        ({"host": "local"}, [5])
    ]
    assert [each.labels for each in sampled.read("gpu_memory", "model", START, 1).series] == [{"gpu": "local:0"}]


def test_gauges_are_those_of_the_moment_and_their_means() -> None:
    sampled = Sampled()
    sampled.now += 59
    sampled.gauges = [("queue", "", "", 4), ("queue", "model", "a", 4)]
    sampled.pass_(31)
    sampled.gauges = []
    sampled.pass_(31)
    assert sampled.values("queue", "model", "a")[-32:-29] == [4, 0, 0]
    assert sampled.values("queue", step=60)[-1] == pytest.approx(2, abs=0.1)


def test_seconds_that_were_not_sampled_are_unknown() -> None:
    sampled = Sampled()
    sampled.pass_(1)
    sampled.now += 2
    sampled.pass_(1)
    assert sampled.values("requests") == [0, None, None, 0]


def test_a_clock_that_is_set_back_loses_nothing_later() -> None:
    sampled = Sampled()
    sampled.pass_(5)
    sampled.now -= 3
    sampled.request("a")
    sampled.pass_(1)
    assert sampled.values("requests")[-1] == 1


def test_names_take_the_place_of_idle_ones_and_others_are_summed_up() -> None:
    sampled = Sampled()
    for number in range(40):
        sampled.request(f"m{number}")
    sampled.pass_(1)
    shown = {each.labels["model"] for each in sampled.read("requests", "model", START, 1).series}
    assert len(shown) == 29
    assert sampled.values("requests", "model", "other") == [12]
    sampled.pass_(900)
    sampled.request("new")
    sampled.pass_(1)
    assert sampled.values("requests", "model", "new")[-1] == 1


def test_the_finer_ring_answers_as_far_as_it_reaches() -> None:
    sampled = Sampled()
    sampled.pass_(1200)
    assert sampled.read("requests", since=sampled.now - 800).step == 1
    assert sampled.read("requests", since=sampled.now - 1000).step == 60
    assert len(sampled.values("requests")) == 900


@pytest.mark.parametrize(
    ("metric", "step", "told"), [("request", None, 'did you mean "requests"?'), ("queue", 5, "1 or")]
)
def test_a_wrong_question_names_what_there_is(metric: str, step: int | None, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told.replace("?", r"\?")):
        Sampled().read(metric, step=step)


def test_the_first_minute_has_no_values_and_begins_where_it_was_asked_for() -> None:
    sampled = Sampled()
    sampled.pass_(2)
    answer = sampled.read("requests", since=sampled.now - 600, step=60)
    assert answer.series == []
    assert answer.from_ == (sampled.now - 600) // 60 * 60


def test_the_far_future_has_no_values() -> None:
    sampled = Sampled()
    sampled.pass_(61)
    assert [each.values for each in sampled.read("requests", since=1e308, step=60).series] == [[]]


def test_values_of_other_buckets_are_gone_when_their_place_is_used_again() -> None:
    ring = BucketRing(1, 4)
    for number in range(10, 16):
        ring.begin(number)
        ring.put("queue", WHOLE, number)
    assert ring.values("queue", WHOLE, 0) == [12, 13, 14, 15]
    ring.begin(18)
    assert ring.values("queue", WHOLE, 0) == [15, None, None, None]


def test_quantiles_are_those_of_evenly_filled_buckets() -> None:
    counts = {**dict.fromkeys(BUCKETS, 0), BUCKETS[2]: 4, inf: 1}
    assert quantile(0.4, counts) == pytest.approx(0.0175)
    assert quantile(0.99, counts) == BUCKETS[-1]


def test_a_full_store_takes_less_than_9_mb() -> None:
    tracemalloc.start()
    ring = SeriesStore()
    for each in ring.rings:
        each.begin(1)
        for number in range(29):
            for metric in range(14):
                each.put(str(metric), SeriesKey("model", str(number)), 1.0)
                each.put(str(metric), SeriesKey("backend", str(number)), 1.0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 9e6
