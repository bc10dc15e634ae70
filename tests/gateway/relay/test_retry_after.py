from __future__ import annotations

import pytest

from enginehouse.relay.answers.engine_error import retry_after

NOON = 1_700_000_000.0  # 14 November 2023, 22:13:20


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (b"content-type: text/plain\r\nRetry-After: 30\r\n", 30),
        (b"retry-after:5\r\n", 5),
        (b"retry-after: Tue, 14 Nov 2023 22:14:20 GMT\r\n", 60),
        (b"retry-after: Tue, 14 Nov 2023 22:12:20 GMT\r\n", 0),
        (b"retry-after: 999999999\r\n", 3600),
        (b"retry-after: soon\r\n", 0),
        (b"retry-after: -3\r\n", 0),
        (b"retry-after: \xb2\r\n", 0),
        (b"retry-after:\r\n", 0),
        (b"x-retry-after: 3\r\n", 0),
        (b"", 0),
    ],
)
def test_the_seconds_for_which_an_engine_wants_to_be_left_alone(lines: bytes, seconds: float) -> None:
    assert retry_after(lines, NOON) == seconds
