"""Traces and metrics for OpenTelemetry's collectors."""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register the exporter, which ``[telemetry]`` configures."""
    from enginehouse_otlp.otlp_exporter import OtlpExporter  # the process that exports does without

    register("otlp", OtlpExporter)
