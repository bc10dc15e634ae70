from __future__ import annotations

import msgspec
import pytest

from enginehouse.config.telemetry import TelemetrySettings
from enginehouse_otlp.otel_environment import TraceChoice, told, trace_choice


def choice(environ: dict[str, str], **settings: object) -> TraceChoice:
    return trace_choice(msgspec.convert(settings, TelemetrySettings), environ)


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio", "follows"),
    [
        ("", "", 0.01, True),
        ("always_on", "", 1.0, False),
        ("always_off", "", 0.0, False),
        ("traceidratio", "0.25", 0.25, False),
        ("parentbased_always_on", "", 1.0, True),
        ("parentbased_always_off", "", 0.0, True),
        ("parentbased_traceidratio", "0.5", 0.5, True),
        ("parentbased_traceidratio", "", 1.0, True),
    ],
)
def test_the_sampler_of_the_environment_decides(sampler: str, argument: str, ratio: float, follows: bool) -> None:
    environ = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    assert choice(environ, traces="otlp") == TraceChoice("otlp", ratio, follows, ())


@pytest.mark.parametrize(("wanted", "traces"), [("", "off"), ("otlp", "otlp"), ("console", "console"), ("none", "off")])
def test_the_exporter_of_the_environment_decides(wanted: str, traces: str) -> None:
    assert choice({"OTEL_TRACES_EXPORTER": wanted}).traces == traces


ON = {"OTEL_TRACES_SAMPLER": "always_on"}
RATIO = {"OTEL_TRACES_SAMPLER": "traceidratio"}
OTLP = {"traces": "otlp"}


@pytest.mark.parametrize(
    ("environ", "settings", "warning"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, {}, "=zipkin has no effect: the gateway knows otlp, console and none"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, {"traces": "off"}, '=otlp has no effect: telemetry.traces is "off"'),
        ({"OTEL_TRACES_SAMPLER": "xray"}, OTLP, "SAMPLER=xray has no effect: the gateway knows"),
        (ON, {**OTLP, "sample_ratio": 0.5}, "SAMPLER=always_on has no effect: telemetry.sample_ratio is 0.5"),
        (ON, {}, 'SAMPLER=always_on has no effect: telemetry.traces is "off"'),
        ({**RATIO, "OTEL_TRACES_SAMPLER_ARG": "much"}, OTLP, "SAMPLER_ARG=much has no effect"),
        ({"OTEL_TRACES_SAMPLER_ARG": "0.5"}, OTLP, "SAMPLER_ARG=0.5 has no effect: OTEL_TRACES_SAMPLER is not"),
        ({"OTEL_PROPAGATORS": "tracecontext,b3"}, OTLP, "=tracecontext,b3 has no effect: the gateway knows"),
        ({"OTEL_SERVICE_NAME": "edge"}, {"service_name": "house"}, "=edge has no effect: telemetry.service_name is"),
    ],
)
def test_a_variable_without_an_effect_is_named(
    environ: dict[str, str], settings: dict[str, object], warning: str
) -> None:
    (found,) = choice(environ, **settings).warnings
    assert found.startswith("OTEL_")
    assert warning in found


def test_a_disabled_sdk_traces_nothing() -> None:
    off = {"OTEL_SDK_DISABLED": "true"}
    assert choice(off) == TraceChoice("off", 0.0, True, ())
    (warning,) = choice(off, traces="otlp").warnings
    assert warning == 'telemetry.traces = "otlp" has no effect: OTEL_SDK_DISABLED is true'


@pytest.mark.parametrize(
    ("settings", "environ", "line"),
    [
        (
            {"traces": "otlp", "sample_ratio": 1.0, "endpoint": "http://key:secret@collector:4318"},
            {},
            "Traces of 100 % of the requests (those over 10 s and those that end with a 5xx in any case) go to "
            "http://collector:4318 (OTLP, http); a client's traceparent decides first",
        ),
        (
            {"keep_slow": 0, "keep_failed": False},
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "Traces of 100 % of the requests go to http://localhost:4317 (OTLP, grpc)",
        ),
        (
            {"traces": "console", "keep_slow": 0},
            {},
            "Traces of 1 % of the requests (those that end with a 5xx in any case) go to standard error; a client's "
            "traceparent decides first",
        ),
    ],
)
def test_one_line_says_what_is_traced_and_where_it_goes(
    settings: dict[str, object], environ: dict[str, str], line: str
) -> None:
    telemetry = msgspec.convert(settings, TelemetrySettings)
    assert told(trace_choice(telemetry, environ), telemetry, environ) == line
