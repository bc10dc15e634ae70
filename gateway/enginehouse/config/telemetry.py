"""The ``[telemetry]`` table."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from enginehouse.config.section import Duration, Positive, SecretText, Section, Share


class TelemetrySettings(Section, frozen=True):
    """Traces, metrics and logs."""

    traces: Annotated[
        Literal["off", "otlp", "console"],
        Meta(description="where to send spans; `console` prints them to standard error"),
    ] = "off"
    endpoint: Annotated[
        str,
        Meta(
            description="base URL of the OTLP collector, such as `http://127.0.0.1:4318`; by default the one of "
            "`OTEL_EXPORTER_OTLP_ENDPOINT`, else this machine"
        ),
    ] = ""
    protocol: Annotated[
        Literal["http", "grpc"] | None,
        Meta(
            description="how to speak to the collector; by default as `OTEL_EXPORTER_OTLP_PROTOCOL` says, else `http`. "
            '`grpc` needs `pip install "enginehouse[otlp-grpc]"`'
        ),
    ] = None
    headers: Annotated[dict[str, SecretText], Meta(description="headers for the collector, such as its key")] = {}
    service_name: Annotated[
        str, Meta(description="`service.name` of spans and metrics; by default `OTEL_SERVICE_NAME`, else `enginehouse`")
    ] = ""
    sample_ratio: Annotated[
        Share, Meta(description="share of requests to trace, where the client's `traceparent` does not decide")
    ] = 0.01
    keep_slow: Annotated[
        Duration, Meta(description="requests that take longer are traced even if they were not sampled; 0: none")
    ] = 10
    keep_failed: Annotated[bool, Meta(description="trace all requests that end with a 5xx")] = True
    propagators: Annotated[
        list[Literal["tracecontext"]],
        Meta(description="headers in which clients and engines exchange the trace; `[]` for none"),
    ] = field(default_factory=lambda: ["tracecontext"])
    capture_content: Annotated[
        bool, Meta(description="put prompts and answers into spans; everybody who can read traces can then read them")
    ] = False
    flush_timeout: Annotated[
        Duration, Meta(description="how long a stopping gateway waits for its last spans to be sent")
    ] = 5
    metrics: Annotated[bool, Meta(description="serve `/metrics` and `/metrics/engines`")] = True
    push_metrics: Annotated[
        Duration, Meta(description="how often to send the metrics to the collector at `endpoint` too; 0: never")
    ] = 0
    max_series: Annotated[
        Positive,
        Meta(description="most series of one metric by backend and model; further ones count as `other`"),
    ] = 1000
    access_log: Annotated[bool, Meta(description="write a line for each request to standard error")] = True
    log_format: Annotated[Literal["text", "json"], Meta(description="plain lines, or one JSON object per line")] = (
        "text"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="lowest severity to log")] = (
        "info"
    )
