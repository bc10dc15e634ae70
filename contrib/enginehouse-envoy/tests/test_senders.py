"""Who sends a request."""

from __future__ import annotations

import pytest
from enginehouse_envoy.messages import sender_in

FORWARDED = (b"x-forwarded-for", b"10.0.0.1, 192.0.2.7")
FAIRNESS = (b"x-gateway-inference-fairness-id", b"tenant-a")
OBJECTIVE = (b"x-gateway-inference-objective", b"chat")


@pytest.mark.parametrize(
    ("headers", "address", "on_behalf"),
    [
        ([], "", None),
        ([FORWARDED], "192.0.2.7", None),
        ([FAIRNESS, OBJECTIVE], "", ("tenant-a", 10)),
        ([FAIRNESS], "", ("tenant-a", 0)),
        ([FAIRNESS, (OBJECTIVE[0], b"unknown")], "", ("tenant-a", 0)),
        ([OBJECTIVE], "", ("default-flow", 10)),
        ([(OBJECTIVE[0], b"unknown")], "", None),
        ([(b"x-llm-d-inference-fairness-id", b"b"), (b"x-llm-d-inference-objective", b"batch")], "", ("b", -5)),
    ],
)
def test_the_sender_that_headers_tell(
    headers: list[tuple[bytes, bytes]], address: str, on_behalf: tuple[str, int] | None
) -> None:
    assert sender_in(headers, {"chat": 10, "batch": -5}) == (address, on_behalf)
