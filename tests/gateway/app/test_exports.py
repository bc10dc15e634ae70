from __future__ import annotations

import pytest

from enginehouse.app.exports import GuardedExporter, build_tracer, find_exporter
from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.exporters import Exporter, Sampling, TracedRequest
from enginehouse.interfaces.observers import Observer
from enginehouse_kit.testing import request_record

REQUEST = TracedRequest(b"1" * 32, 1, b"", (b"", b""), b"", request_record())


class Kept(Exporter):
    """Keeps the requests; ``broken``: fails instead."""

    def __init__(self, broken: bool = False) -> None:
        self.requests: list[TracedRequest] = []
        self.broken = broken

    def sampling(self, settings: TelemetrySettings) -> Sampling | None:
        return None if settings.traces == "off" else Sampling(1.0)

    def prepare(self, *_: object) -> None: ...

    def start(self) -> None: ...

    def admits(self) -> bool:
        if self.broken:
            raise SystemExit
        return True

    def add(self, request: TracedRequest) -> None:
        if self.broken:
            raise RuntimeError("no way")
        self.requests.append(request)

    def parameters(self, body: bytes) -> bytes:
        if self.broken:
            raise SystemExit
        return body

    async def close(self) -> None:
        if self.broken:
            raise SystemExit


def guarded(exporter: Exporter, name: str = "kept") -> GuardedExporter:
    found = find_exporter(TelemetrySettings(), [(PluginId("observer", name), exporter)])
    assert found is not None
    return found


def test_the_last_exporter_takes_the_requests_that_are_traced() -> None:
    first, last = Kept(), Kept()
    observers = [(PluginId("observer", str(number)), each) for number, each in enumerate((first, Observer(), last))]
    tracer = build_tracer(TelemetrySettings(), find_exporter(TelemetrySettings(), observers), None)
    assert tracer is not None
    assert tracer.begin([])[0] is not None
    assert tracer.parameters(b"{}") == b"{}"
    tracer.add(REQUEST)
    assert (first.requests, last.requests) == ([], [REQUEST])


def test_an_exporter_that_fails_costs_the_trace_and_no_request(caplog: pytest.LogCaptureFixture) -> None:
    tracer = build_tracer(TelemetrySettings(), guarded(Kept(broken=True)), None)
    assert tracer is not None
    assert tracer.begin([])[0] is None
    assert tracer.parameters(b"{}") == b""
    tracer.add(REQUEST)
    assert "The observer 'kept' failed in admits" in caplog.text


def test_an_exporter_that_returns_nothing_costs_the_trace_and_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("admits", "parameters"):
        monkeypatch.setattr(Kept, method, lambda *_: None)
    tracer = build_tracer(TelemetrySettings(), guarded(Kept()), None)
    assert tracer is not None
    assert tracer.begin([])[0] is None
    assert tracer.parameters(b"{}") == b""


async def test_an_exporter_that_fails_at_its_end_does_not_hold_up_that_of_the_gateway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await guarded(Kept(broken=True), "ending").close()
    assert "The observer 'ending' failed in close" in caplog.text


def test_an_exporter_that_cannot_begin_leaves_the_gateway_without_traces(caplog: pytest.LogCaptureFixture) -> None:
    class Unready(Kept):
        def sampling(self, settings: TelemetrySettings) -> Sampling | None:
            raise RuntimeError("no idea")

        def start(self) -> None:
            raise RuntimeError("no process")

    assert build_tracer(TelemetrySettings(), guarded(Unready(), "undecided"), None) is None
    guarded(Unready(), "unready").start()
    assert "The observer 'undecided' failed in sampling" in caplog.text
    assert "The observer 'unready' failed in start" in caplog.text


def test_nothing_is_traced_if_the_exporter_wants_nothing() -> None:
    assert build_tracer(TelemetrySettings(traces="off"), guarded(Kept()), None) is None
    assert find_exporter(TelemetrySettings(traces="off"), []) is None


@pytest.mark.parametrize(
    "settings",
    [TelemetrySettings(traces="otlp"), TelemetrySettings(push_metrics=1), TelemetrySettings(genai_metrics=True)],
)
def test_an_export_without_an_exporter_is_refused(settings: TelemetrySettings) -> None:
    with pytest.raises(ConfigError, match="no plugin that exports is installed"):
        find_exporter(settings, [])
