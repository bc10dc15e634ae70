"""The ``[telemetry]`` table."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from enginehouse.config.section import Duration, Positive, SecretText, Section, Share, about


class TelemetrySettings(Section, frozen=True):
    """Traces, metrics and logs."""

    traces: Annotated[
        Literal["off", "otlp", "console"] | None,
        about(
            "where to send spans; `console` prints them to standard error; by default "
            "`OTEL_TRACES_EXPORTER`, else `off`"
        ),
    ] = None
    endpoint: Annotated[
        str,
        about(
            "base URL of the OTLP collector, such as `http://127.0.0.1:4318`; by default "
            "`OTEL_EXPORTER_OTLP_ENDPOINT`, else this machine"
        ),
    ] = ""
    protocol: Annotated[
        Literal["http", "grpc"] | None,
        about(
            "protocol of the collector; by default `OTEL_EXPORTER_OTLP_PROTOCOL`, else `http`. "
            '`grpc` needs `pip install "enginehouse[otlp-grpc]"`'
        ),
    ] = None
    headers: Annotated[dict[str, SecretText], about("headers for the collector, such as its key")] = {}
    service_name: Annotated[
        str, about("`service.name` of spans and metrics; by default `OTEL_SERVICE_NAME`, else `enginehouse`")
    ] = ""
    sample_ratio: Annotated[
        Share | None,
        about(
            "share of the requests without `traceparent` to trace; with one, its flag decides; by default "
            "`OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`, else 0.01"
        ),
    ] = None
    keep_slow: Annotated[
        Duration, about("trace requests that take longer, even if they were not sampled; 0 for none")
    ] = 10
    keep_failed: Annotated[bool, about("trace all requests that end with a 5xx")] = True
    propagators: Annotated[
        list[Literal["tracecontext"]], about("headers in which clients and engines exchange the trace; `[]` for none")
    ] = field(default_factory=lambda: ["tracecontext"])
    capture_content: Annotated[
        bool, about("put prompts and answers into spans; everyone who can read traces can then read them")
    ] = False
    trace_url: Annotated[
        str,
        about(
            "where people read a trace: an address with `{trace_id}`, such as "
            "`https://jaeger.example/trace/{trace_id}`; the dashboard links to it"
        ),
    ] = ""
    flush_timeout: Annotated[
        Duration, about("time for which a stopping gateway waits for its last spans to be sent")
    ] = 5
    metrics: Annotated[bool, about("serve `/metrics` and `/metrics/engines`")] = True
    push_metrics: Annotated[
        Duration, about("interval at which to send the metrics to the collector at `endpoint`; 0 for never")
    ] = 0
    genai_metrics: Annotated[
        bool,
        about(
            "also send the histograms of OpenTelemetry's conventions for generative AI, "
            "`gen_ai.client.*` and `gen_ai.server.*`; every 60 s if `push_metrics` is 0"
        ),
    ] = False
    max_series: Annotated[
        Positive, about("most pairs of backend and model for which a metric has series; others count as `other`")
    ] = 1000
    per_worker: Annotated[bool, about("metrics of each worker beside those of the gateway, with a label `worker`")] = (
        False
    )
    access_log: Annotated[
        bool | None,
        about("write a line for each request to standard error; by default, if the plugin `access_log` is enabled"),
    ] = None
    log_format: Annotated[Literal["text", "json"], about("plain lines, or one JSON object per line")] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("lowest severity to log")] = "info"
