"""OpenTelemetry's variables of the environment, for the keys of ``[telemetry]`` that the configuration leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from enginehouse.records import TelemetrySettings

Traces = Literal["off", "otlp", "console"]

DEFAULT_RATIO: Final = 0.01
_EXPORTERS: Final[Mapping[str, Traces]] = {"otlp": "otlp", "console": "console", "none": "off"}
_SAMPLERS: Final[Mapping[str, float | None]] = {"always_on": 1.0, "always_off": 0.0, "traceidratio": None}
"""The ratio of each; ``None``: that of ``OTEL_TRACES_SAMPLER_ARG``."""
_PROPAGATORS: Final = {"", "tracecontext", "baggage"}
_BY_PARENT: Final = "parentbased_"
_EXPORTER, _SAMPLER, _ARGUMENT = "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"


class TraceChoice(NamedTuple):
    """What is traced, and where it goes.

    ``follows_parent``: the client's ``traceparent`` decides first. ``warnings``: the variables without an effect.
    """

    traces: Traces
    ratio: float
    follows_parent: bool
    warnings: tuple[str, ...]


def trace_choice(settings: TelemetrySettings, environ: Mapping[str, str]) -> TraceChoice:
    """The choice of the configuration and, where it says nothing, of the environment."""
    warnings: list[str] = []
    traces = settings.traces
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        unused = f'telemetry.traces = "{traces}" has no effect: OTEL_SDK_DISABLED is true'
        return TraceChoice("off", 0.0, True, (unused,) if traces not in (None, "off") else ())
    if traces is None:
        traces, unknown = _exporter(environ.get(_EXPORTER, ""))
        warnings += unknown
    elif environ.get(_EXPORTER) and _EXPORTERS.get(environ[_EXPORTER]) != traces:
        warnings.append(_no_effect(_EXPORTER, environ, f'telemetry.traces is "{traces}"'))
    ratio, follows_parent = settings.sample_ratio, True
    if ratio is None:
        ratio, follows_parent, unknown = _sampler(environ)
        warnings += unknown
    elif environ.get(_SAMPLER):
        warnings.append(_no_effect(_SAMPLER, environ, f"telemetry.sample_ratio is {ratio:g}"))
    if environ.get("OTEL_SERVICE_NAME") and settings.service_name not in ("", environ["OTEL_SERVICE_NAME"]):
        why = f'telemetry.service_name is "{settings.service_name}"'
        warnings.append(_no_effect("OTEL_SERVICE_NAME", environ, why))
    if set(environ.get("OTEL_PROPAGATORS", "").replace(" ", "").split(",")) - _PROPAGATORS:
        warnings.append(_no_effect("OTEL_PROPAGATORS", environ, "the gateway knows tracecontext and baggage"))
    if traces == "off" and environ.get(_SAMPLER) and settings.sample_ratio is None:
        warnings.append(_no_effect(_SAMPLER, environ, 'telemetry.traces is "off"'))
    return TraceChoice(traces, ratio, follows_parent, tuple(warnings))


def told(choice: TraceChoice, settings: TelemetrySettings, environ: Mapping[str, str]) -> str:
    """The line of the log that says what is traced, and where it goes."""
    also = [f"those over {settings.keep_slow:g} s"] if settings.keep_slow else []
    also += ["those that end with a 5xx"] if settings.keep_failed else []
    kept = f" ({' and '.join(also)} in any case)" if also else ""
    first = "; a client's traceparent decides first" if choice.follows_parent and settings.propagators else ""
    return f"Traces of {choice.ratio * 100:g} % of the requests{kept} go to {_where(choice, settings, environ)}{first}"


def _where(choice: TraceChoice, settings: TelemetrySettings, environ: Mapping[str, str]) -> str:
    if choice.traces == "console":
        return "standard error"
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    protocol = "grpc" if (settings.protocol or protocol) == "grpc" else "http"
    address = settings.endpoint or next(_endpoints(environ), "")
    parts = urlsplit(address or f"http://localhost:{4317 if protocol == 'grpc' else 4318}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path} (OTLP, {protocol})"


def _endpoints(environ: Mapping[str, str]) -> Iterator[str]:
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return (environ[name] for name in names if environ.get(name))


def _exporter(wanted: str) -> tuple[Traces, list[str]]:
    if not wanted or wanted in _EXPORTERS:
        return _EXPORTERS.get(wanted, "off"), []
    return "off", [f"{_EXPORTER}={wanted} has no effect: the gateway knows otlp, console and none"]


def _sampler(environ: Mapping[str, str]) -> tuple[float, bool, list[str]]:
    """The ratio, whether the client decides first, and warnings."""
    wanted = environ.get(_SAMPLER, "")
    name = wanted.removeprefix(_BY_PARENT)
    has_use = name == "traceidratio" or not environ.get(_ARGUMENT)
    unused = [] if has_use else [_no_effect(_ARGUMENT, environ, f"{_SAMPLER} is not traceidratio")]
    if not wanted:
        return DEFAULT_RATIO, True, unused
    if name not in _SAMPLERS:
        known = ", ".join(_SAMPLERS)
        return DEFAULT_RATIO, True, [f"{_SAMPLER}={wanted} has no effect: the gateway knows {known}, also parentbased_"]
    ratio = _SAMPLERS[name]
    if ratio is None:
        ratio, unused = _ratio(environ.get(_ARGUMENT, ""))
    return ratio, wanted != name, unused


def _ratio(argument: str) -> tuple[float, list[str]]:
    """The share in ``argument``; 1 without one, as in OpenTelemetry's SDKs."""
    try:
        ratio = float(argument or 1)
    except ValueError:
        ratio = -1.0
    if 0 <= ratio <= 1:
        return ratio, []
    return 1.0, [f"{_ARGUMENT}={argument} has no effect: it must be a number from 0 to 1"]


def _no_effect(name: str, environ: Mapping[str, str], why: str) -> str:
    return f"{name}={environ[name]} has no effect: {why}"
