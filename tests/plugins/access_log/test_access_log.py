from __future__ import annotations

import json
import threading
from typing import Any

import msgspec
import pytest

from enginehouse.records import RequestFacts
from enginehouse.routing_facts import Reason
from enginehouse_access_log.access_line import json_line, text_line
from enginehouse_access_log.access_log import AccessLog
from enginehouse_kit.testing import request_record
from tests.support.request_facts import facts_of

AT = 1e9 + 0.25
ATTEMPT = msgspec.structs.replace(request_record("m", "a").attempts[0], reason=Reason.ALIAS)


def ended(**changed: Any) -> RequestFacts:
    known = {"id": "req-1", "path": "/v1/completions", "trace_id": "abc", "asked": "gpt", "attempts": (ATTEMPT,)}
    times = {"time": AT, "arrived": 10.0, "first_byte": 10.2, "ended": 10.5}
    counts = {"tokens_in": 3, "tokens_out": 4, "bytes_out": 99}
    return facts_of(request_record("m", "a", **known | times | counts | changed))


def refused() -> RequestFacts:
    record = request_record(None, id="req-1", path="/v1/completions", asked=None, arrived=10.0, ended=10.5)
    return facts_of(record)


def test_a_line_tells_what_became_of_a_request() -> None:
    assert text_line(ended()).partition(" INFO ")[2] == (
        "enginehouse.access: POST /v1/completions 200 outcome=served model=gpt backend=a reason=alias "
        "duration_ms=500.0 first_byte_ms=200.0 input_tokens=3 output_tokens=4 bytes=99 request_id=req-1 trace_id=abc\n"
    )


def test_a_line_for_machines_has_the_same_facts() -> None:
    line = json.loads(json_line(ended()))
    assert (line["time"], line["logger"], line["status"]) == (
        "2001-09-09T01:46:40.250+00:00",
        "enginehouse.access",
        200,
    )
    assert (line["request_id"], line["trace_id"], line["backend"], line["duration_ms"]) == ("req-1", "abc", "a", 500)


def test_what_is_unknown_is_left_out() -> None:
    line = text_line(refused())
    assert line.endswith(
        "POST /v1/completions 404 outcome=model_not_found duration_ms=500.0 bytes=0 request_id=req-1\n"
    )


def test_both_forms_have_the_same_facts() -> None:
    chunks = ended(tokens_in=None, tokens_out=None, events=5)
    for each in (ended(), ended(attempts=(ATTEMPT, ATTEMPT)), ended(caller="team-a"), chunks, refused()):
        told = dict(part.split("=") for part in text_line(each).rpartition(f"{each.status} ")[2].split())
        line = json.loads(json_line(each))
        for name in ("time", "level", "logger", "message", "method", "path", "status"):
            del line[name]
        assert told == {name: str(value) for name, value in line.items()}


def test_events_stand_for_tokens_that_no_engine_counted() -> None:
    assert " output_tokens=5 bytes=99 " in text_line(ended(tokens_in=None, tokens_out=None, events=5))


def test_a_client_cannot_forge_a_line() -> None:
    line = text_line(ended(asked="m\n2026-01-01 INFO forged", id="a b"))
    assert line.count("\n") == 1
    assert "model='m\\n2026-01-01 INFO forged'" in line
    assert "request_id='a b'" in line


async def test_lines_are_written_together_by_another_thread() -> None:
    written: list[tuple[int, bytes]] = []
    log = AccessLog(json=False, write=lambda data: written.append((threading.get_ident(), data)))
    for _ in range(100):
        log.add(ended())
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
        log.add(ended())
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
    log.add(ended(id="lost"))
    await log.close()
    broken = False
    log.add(ended(id="kept"))
    await log.close()
    assert [json.loads(line)["request_id"] for line in written.splitlines()] == ["kept"]
    assert caplog.records == [], "a broken pipe is not reported on the same pipe"


async def test_lines_of_the_other_log_are_as_many_at_most() -> None:
    gate, written = threading.Event(), bytearray()

    def write(data: bytes) -> None:
        gate.wait(30)
        written.extend(data)

    log = AccessLog(json=False, write=write)
    log.add(ended())
    for _ in range(20_000 + 9):
        assert log.add_behind("a line of the gateway\n")
    gate.set()
    await log.close()
    lines = bytes(written).splitlines()
    assert lines.count(b"a line of the gateway") == 20_000 + 1
    assert b" 8 lines " in lines[-1]
