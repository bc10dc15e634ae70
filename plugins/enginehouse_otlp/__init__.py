"""Traces and metrics for OpenTelemetry's collectors.

::

    otlp_exporter       what the gateway calls
    otel_environment    what is traced, and where it goes: [telemetry] and the OTEL_* variables
    request_parameters  what a trace has of a request's body
    exporter_process    the process that exports, as the gateway sees it; figures: what is counted of the traces
    metric_push         the gateway's metrics, at intervals; genai_metrics: histograms by OpenTelemetry's conventions
    messages            the messages between the gateway and that process; framing: their frames on a pipe
    operations          the names of operations in spans and metrics
    process/            that process
"""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register the exporter, which ``[telemetry]`` configures."""
    from enginehouse_otlp.otlp_exporter import OtlpExporter  # the process that exports does without

    register("otlp", OtlpExporter)
