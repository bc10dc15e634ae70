"""Makes the parts that trace requests, as ``[telemetry]`` says."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec

from enginehouse.config.schema import TelemetrySettings
from enginehouse.domain.errors import ConfigError
from enginehouse.telemetry.exporter.messages import ExportSettings
from enginehouse.telemetry.exporter_process import ExporterProcess

_GRPC = "opentelemetry.exporter.otlp.proto.grpc"


def build_exporter(telemetry: TelemetrySettings) -> ExporterProcess | None:
    """The exporter, which is not started yet; ``None`` if nothing is exported. Raises ``ConfigError``."""
    if telemetry.protocol == "grpc" and not _installed(_GRPC):
        remedy = 'pip install "enginehouse[otlp-grpc]"'
        raise ConfigError("the exporter for gRPC is not installed", key="telemetry.protocol", remedy=remedy)
    if telemetry.traces == "off" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    return ExporterProcess(
        ExportSettings(
            traces=telemetry.traces,
            endpoint=telemetry.endpoint,
            protocol=telemetry.protocol or "",
            headers={name: str(value) for name, value in telemetry.headers.items()},
            service_name=telemetry.service_name,
            version=version("enginehouse"),
            flush_timeout=telemetry.flush_timeout,
        )
    )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
