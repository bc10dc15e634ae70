from __future__ import annotations

import json
import threading

import pytest

from enginehouse.domain.replica import Candidate
from enginehouse.domain.route import Reason, Route
from enginehouse.telemetry.access_line import Access, json_line, text_line
from enginehouse.telemetry.access_log import AccessLog
from enginehouse.telemetry.record import AttemptRecord, Ending, Tokens

ROUTE = Route("gpt", Candidate(model="m", backend="a", replica="m@a"), Reason.ALIAS, ("gpt", "m"))
ATTEMPT = AttemptRecord(ROUTE, "served", 10.0, 10.5, sent=10.1, first_byte=10.2, status=200)
ENDING = Ending(200, "served", "", Tokens(3, 4, "usage"), 99)


def access(**changed: object) -> Access:
    known = Access(1e9 + 0.25, b"req-1", b"abc", "POST", "/v1/completions", "gpt", 10.0, 10.5, [ATTEMPT], ENDING)
    return known._replace(**changed)  # type: ignore[arg-type]


def test_a_line_tells_what_became_of_a_request() -> None:
    assert text_line(access()).partition(" INFO ")[2] == (
        "enginehouse.access: POST /v1/completions 200 outcome=served model=gpt backend=a reason=alias "
        "duration_ms=500.0 first_byte_ms=200.0 input_tokens=3 output_tokens=4 bytes=99 request_id=req-1 trace_id=abc\n"
    )


def test_a_line_for_machines_has_the_same_facts() -> None:
    line = json.loads(json_line(access()))
    assert (line["time"], line["logger"], line["status"]) == (
        "2001-09-09T01:46:40.250+00:00",
        "enginehouse.access",
        200,
    )
    assert (line["request_id"], line["trace_id"], line["backend"], line["duration_ms"]) == ("req-1", "abc", "a", 500)


def test_what_is_unknown_is_left_out() -> None:
    line = text_line(access(attempts=[], ending=Ending(404, "model_not_found"), trace_id=b"", model=""))
    assert line.endswith(
        "POST /v1/completions 404 outcome=model_not_found duration_ms=500.0 bytes=0 request_id=req-1\n"
    )


def test_both_forms_have_the_same_facts() -> None:
    chunks = Ending(200, "served", "", Tokens(0, 4, "chunks"), 99)
    refused = access(attempts=[], ending=Ending(404, "model_not_found"), trace_id=b"", model="")
    for each in (access(), access(attempts=[ATTEMPT, ATTEMPT]), access(ending=chunks), refused):
        told = dict(part.split("=") for part in text_line(each).rpartition(f"{each.ending.status} ")[2].split())
        line = json.loads(json_line(each))
        for name in ("time", "level", "logger", "message", "method", "path", "status"):
            del line[name]
        assert told == {name: str(value) for name, value in line.items()}


def test_a_continued_stream_has_the_first_byte_of_its_first_attempt() -> None:
    asked_again = AttemptRecord(ROUTE, "answered", 10.0, 10.1, sent=10.0, first_byte=10.1, status=503)
    broken = AttemptRecord(ROUTE, "upstream_error", 10.1, 10.3, sent=10.1, first_byte=10.2, status=200)
    continued = AttemptRecord(ROUTE, "served", 10.3, 10.5, sent=10.3, first_byte=10.4, status=200)
    line = text_line(access(attempts=[asked_again, broken, continued]))
    assert "attempts=3 duration_ms=500.0 first_byte_ms=200.0 " in line


def test_a_client_cannot_forge_a_line() -> None:
    line = text_line(access(model="m\n2026-01-01 INFO forged", request_id=b"a b"))
    assert line.count("\n") == 1
    assert "model='m\\n2026-01-01 INFO forged'" in line
    assert "request_id='a b'" in line


async def test_lines_are_written_together_by_another_thread() -> None:
    written: list[tuple[int, bytes]] = []
    log = AccessLog(json=False, write=lambda data: written.append((threading.get_ident(), data)))
    for _ in range(100):
        log.add(access())
    assert written == []
    await log.close()
    ((thread, data),) = written
    assert thread != threading.get_ident()
    assert data.count(b"\n") == 100


async def test_a_reader_that_stands_still_costs_lines_and_no_memory() -> None:
    gate, written = threading.Event(), bytearray()

    def write(data: bytes) -> None:
        gate.wait(30)
        written.extend(data)

    log = AccessLog(json=True, write=write)
    for _ in range(2048 + 20_000 + 7):
        log.add(access())
    gate.set()
    await log.close()
    *lines, last = bytes(written).splitlines()
    assert len(lines) == 2048 + 20_000
    assert json.loads(last)["message"].startswith("7 lines of the access log were dropped")


async def test_lines_are_written_again_once_standard_error_works_again(caplog: pytest.LogCaptureFixture) -> None:
    broken, written = True, bytearray()

    def write(data: bytes) -> None:
        if broken:
            raise BrokenPipeError
        written.extend(data)

    log = AccessLog(json=True, write=write)
    log.add(access(request_id=b"lost"))
    await log.close()
    broken = False
    log.add(access(request_id=b"kept"))
    await log.close()
    assert [json.loads(line)["request_id"] for line in written.splitlines()] == ["kept"]
    assert caplog.records == [], "a broken pipe is not reported on the same pipe"
