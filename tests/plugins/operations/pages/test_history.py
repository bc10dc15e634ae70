from __future__ import annotations

from typing import Any

import pytest

from enginehouse import AttemptRecord, RequestRecord
from enginehouse.pages import EndedRequest
from enginehouse.records import EngineTimings
from enginehouse.routing_facts import Reason
from enginehouse_operations.pages.history import model_figures, quantile, request_row


def record(**more: Any) -> RequestRecord:
    usual = {"id": "r", "method": "POST", "path": "/v1/chat/completions", "status": 200, "outcome": "served"}
    return RequestRecord(**{**usual, "arrived": 10.0, "ended": 12.0, **more})


def attempt(backend: str, outcome: str) -> AttemptRecord:
    return AttemptRecord(
        backend=backend,
        driver="vllm",
        replica=f"m@{backend}",
        model="m",
        reason=Reason.MATCH,
        attempted=("m",),
        outcome=outcome,
        why="",
        status=200,
        queued=False,
        began=10.0,
        granted=None,
        sent=10.5,
        first_byte=None,
        ended=11.0,
    )


def row(**more: Any) -> dict[str, Any]:
    headers = [(b"user-agent", b"curl"), (b"x-session-id", b"s"), (b"authorization", b"k")]
    return request_row(EndedRequest(1, 1000.0, record(**more), headers, "::1"), ["x-other", "x-session-id"])


def test_a_row_names_its_sender_and_no_secret() -> None:
    shown = row()
    assert (shown["agent"], shown["session"], shown["address"], shown["time"]) == ("curl", "s", "::1", 1000.0)
    assert "k" not in shown.values()


def test_a_row_tells_where_the_request_was_tried() -> None:
    tried = [attempt("slow", "upstream_stalled"), attempt("fast", "served")]
    shown = row(attempts=tuple(tried))
    assert [(each["backend"], each["outcome"], each["reason"]) for each in shown["attempts"]] == [
        ("slow", "upstream_stalled", "match"),
        ("fast", "served", "match"),
    ]
    assert shown["retries"] == 1


def test_rates_of_a_stream_are_as_the_gateway_saw_them() -> None:
    stream = {"stream": True, "sent": 10.5, "first_byte": 11.0, "tokens_in": 120, "tokens_cached": 20}
    shown = row(**stream, tokens_out=51)
    assert (shown["prefill_rate"], shown["decode_rate"]) == (200.0, 50.0)
    assert (shown["duration_ms"], shown["wait_ms"], shown["ttft_ms"]) == (2000.0, 500.0, 1000.0)
    assert row(**stream, events=51)["decode_rate"] == 50.0


def test_the_engines_own_rates_win() -> None:
    timings = EngineTimings(prefill_rate=1000.5, decode_rate=90.25, drafted=20, accepted=14)
    shown = row(stream=True, sent=10.5, first_byte=11.0, tokens_in=120, tokens_out=51, timings=timings)
    assert (shown["prefill_rate"], shown["decode_rate"]) == (1000.5, 90.25)
    assert (shown["tokens_drafted"], shown["tokens_accepted"]) == (20, 14)


@pytest.mark.parametrize(
    "known",
    [{}, {"tokens_in": 5, "tokens_out": 5}, {"stream": True, "sent": 11.0, "first_byte": 11.0, "tokens_in": 5}],
)
def test_a_rate_that_nobody_knows_is_absent(known: dict[str, Any]) -> None:
    shown = row(**known)
    assert (shown["prefill_rate"], shown["decode_rate"]) == (None, None)


def test_figures_of_models() -> None:
    served = [record(model="m", ended=10 + n / 100, first_byte=10 + n / 200, tokens_out=2) for n in range(1, 101)]
    failed = [record(model="m", status=502, code="upstream_error") for _ in range(25)]
    one, other = model_figures([record(), record(model="n"), *served, *failed])
    assert (one["model"], one["requests"], one["success"], one["tokens_out"]) == ("m", 125, 0.8, 200)
    assert [one[f"duration_ms_{share}"] for share in ("p50", "p95", "p99")] == [500.0, 950.0, 990.0]
    assert one["first_byte_ms_p50"] == 250.0
    assert (other["model"], other["first_byte_ms_p99"]) == ("n", None)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.95, 4), (0.01, 1), (1.0, 4)])
def test_a_quantile_is_one_of_the_values(share: float, expected: float) -> None:
    assert quantile([1, 2, 3, 4], share) == expected
    assert quantile([], share) is None
