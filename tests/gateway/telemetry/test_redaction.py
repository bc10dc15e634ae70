from __future__ import annotations

import logging
import threading

import pytest

from enginehouse.telemetry.log_context import LogContext, LoggedIds, log_context
from enginehouse.telemetry.logs import JsonLines, Redaction, TextLines

SECRET = "s3cret-of-the-house"
LINES = {
    "a secret": f"key {SECRET}!",
    "a header": "Authorization: Bearer abc.def-1 sent",
    "a header of bytes": "(b'authorization', b'Bearer abc')",
    "a key": "x-api-key=abc, more",
    "a field": '{"api_key": "abc"}',
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_secrets_are_masked(line: str) -> None:
    assert "abc" not in Redaction([SECRET]).apply(line)
    assert SECRET not in Redaction([SECRET]).apply(line)


def test_short_secrets_are_left_alone_and_long_ones_go_first() -> None:
    assert Redaction(["key", "secret-1", "secret-12"]).apply("key secret-12 secret-1") == "key *** ***"


def record() -> logging.LogRecord:
    try:
        raise ValueError(f"plugin saw {SECRET}")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
        return logging.LogRecord("x", logging.INFO, __file__, 1, "with %s", (SECRET,), info)


@pytest.mark.parametrize("formatter", [TextLines(Redaction([SECRET])), JsonLines(Redaction([SECRET]))])
def test_messages_and_tracebacks_are_masked(formatter: logging.Formatter) -> None:
    line = formatter.format(record())
    assert SECRET not in line
    assert "ValueError: plugin saw ***" in line


def test_lines_of_a_request_name_it_and_its_trace() -> None:
    text, json = TextLines(Redaction()), JsonLines(Redaction())
    with log_context.named(LoggedIds(b"req-1", b"abc")):
        assert "request_id=req-1 trace_id=abc" in text.format(record())
        assert '"request_id":"req-1","trace_id":"abc"' in json.format(record())
    assert "request_id" not in text.format(record()) + json.format(record())


def test_what_was_named_before_is_named_again() -> None:
    context, here = LogContext(), threading.get_ident()
    with context.named(LoggedIds(b"outer", b"t")):
        with context.named(LoggedIds(b"inner", b"")):
            assert context.ids(here) == {"request_id": "inner"}
        assert context.ids(here) == {"request_id": "outer", "trace_id": "t"}
    assert context.ids(here) == {}


def test_lines_of_another_thread_name_no_request() -> None:
    context = LogContext()
    with context.named(LoggedIds(b"req-1", b"")):
        assert context.ids(threading.get_ident())
        assert not context.ids(threading.get_ident() + 1)
