"""Secrets and prompts planted in requests and in the configuration show up nowhere."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.otlp_collector import HttpCollector

ADMIN, CLIENT, ENGINE, COLLECTOR = "planted-adm1n", "planted-cl1ent", "planted-eng1ne", "planted-c0llector"
STRANGER, PROMPT, COOKIE = "planted-str4nger", "planted-pr0mpt", "planted-c00kie"
_ASKED = 7
PLANTED = (ADMIN, CLIENT, ENGINE, COLLECTOR, STRANGER, PROMPT, COOKIE)


class Watched(NamedTuple):
    gateway: RunningGateway
    collector: HttpCollector
    seen: dict[str, str]
    """Where the planted texts must not be."""


@pytest.fixture(scope="module", params=[("otlp", "text"), ("console", "json")], ids=["otlp", "console"])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A gateway after requests of all kinds, with everything that it told of them."""
    traces, log_format = request.param
    with ExitStack() as stack, HttpCollector() as collector, SimEngine("m", api_key=ENGINE) as engine:
        config = f"""
[telemetry]
traces = "{traces}"
log_format = "{log_format}"
endpoint = "{collector.url}"
headers = {{ x-key = "{COLLECTOR}" }}
sample_ratio = 1.0
log_level = "debug"
[auth]
keys = [{{ name = "admin", key = "{ADMIN}", admin = true }}, {{ name = "client", key = "{CLIENT}" }}]
[backends.good]
driver = "sim"
url = "{engine.url}"
api_key = "{ENGINE}"
[backends.gone]
url = "http://127.0.0.1:9"
models = ["gone"]
api_key = "{ENGINE}"
"""
        with RunningGateway(config, key=ADMIN) as gateway:
            gateway.until_health(good="healthy", gone="unhealthy")
            operator = stack.enter_context(plain_httpx.Client(base_url=gateway.url, headers={"x-api-key": ADMIN}))
            events = _Events(operator)
            errors = _ask_everything(gateway)
            if traces == "otlp":
                collector.until(lambda spans: sum(span.kind == "server" for span in spans) >= 5)
            else:
                gateway.until(lambda _: gateway.log.count("SpanKind.SERVER") >= 5)
            seen = {
                "errors": errors,
                "decisions": operator.get("/api/decisions").text,
                "requests": operator.get("/api/requests").text,
                "metrics": operator.get("/metrics").text,
                "events": events.close(),
                "traces": repr(collector.spans) if traces == "otlp" else gateway.log,
            }
            gateway.until(lambda _: gateway.log.count("enginehouse.access") >= 5)
            seen["log"] = gateway.log
            yield Watched(gateway, collector, seen)


def _ask_everything(gateway: RunningGateway) -> str:
    """Served, streamed, refused and failed requests; the answers that are errors."""
    message = {"messages": [{"role": "user", "content": PROMPT}]}
    known = {"authorization": f"Bearer {CLIENT}", "cookie": COOKIE}
    answers = [
        _post(gateway, {"model": "m", **message}, known),
        _post(gateway, {"model": "m", "stream": True, **message}, known),
        _post(gateway, {"model": "gone", **message}, known),
        _post(gateway, {"model": "nowhere", **message}, known),
        _post(gateway, {"model": "m", "messages": PROMPT, "stream": PROMPT}, known),
        _post(gateway, {"model": "m", **message}, {"authorization": f"Bearer {STRANGER}"}),
        _post(gateway, {"model": "m", **message}, {"x-api-key": STRANGER}),
    ]
    assert len(answers) == _ASKED
    assert [answer.status_code for answer in answers[:2]] == [200, 200]
    return "".join(answer.text + repr(answer.headers) for answer in answers if answer.status_code >= 400)


def _post(gateway: RunningGateway, body: object, headers: dict[str, str]) -> httpx.Response:
    url = f"{gateway.url}/v1/chat/completions"
    return plain_httpx.post(url, json=body, headers=headers)


class _Events:
    """What ``/api/events`` tells meanwhile."""

    def __init__(self, operator: httpx.Client) -> None:
        self._pieces: list[str] = []
        self._operator = operator
        self._began, self._ended = threading.Event(), threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._began.wait(30)

    def _read(self) -> None:
        with suppress(httpx.HTTPError), self._operator.stream("GET", "/api/events") as stream:
            for piece in stream.iter_text():
                self._pieces.append(piece)
                self._began.set()
                if "".join(self._pieces).count("event: request_finished") >= _ASKED:
                    break
        self._ended.set()

    def close(self) -> str:
        assert self._ended.wait(30)
        return "".join(self._pieces)


@pytest.mark.parametrize("where", ["errors", "decisions", "requests", "metrics", "events", "traces", "log"])
def test_nothing_planted_shows(watched: Watched, where: str) -> None:
    text = watched.seen[where]
    assert text
    assert [planted for planted in PLANTED if planted in text] == []


def test_all_of_it_was_there(watched: Watched) -> None:
    """Else the test above could not fail."""
    assert '"chosen"' in watched.seen["decisions"]
    assert "request_finished" in watched.seen["events"]
    assert "chat m" in watched.seen["traces"]
    assert " 401" in watched.seen["log"]
    assert _served_lines(watched)


def test_the_line_of_a_traced_request_names_its_trace(watched: Watched) -> None:
    traces = {span.trace_id for span in watched.collector.spans} or set(
        re.findall(r'"trace_id": "0x([0-9a-f]{32})"', watched.seen["traces"])
    )
    for line in _served_lines(watched):
        found = re.search(r'trace_id"?[=:]"?([0-9a-f]{32})', line)
        assert found is not None
        assert found[1] in traces


def _served_lines(watched: Watched) -> list[str]:
    """The lines of served requests, in either form."""
    return [line for line in watched.seen["log"].splitlines() if re.search(r'outcome"?[=:]"?served', line)]
