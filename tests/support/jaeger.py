"""Reads spans as Jaeger does, and as OpenTelemetry's published conventions want them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from opentelemetry.semconv._incubating import attributes as published

from tests.support.otlp_collector import CollectedSpan
from tests.support.traced_gateway import CLIENT

_DEPRECATED = {"gen_ai.system", "gen_ai.prompt", "gen_ai.completion"} | {
    f"gen_ai.usage.{kind}_tokens" for kind in ("prompt", "completion")
}
_OWN = "enginehouse."
_SERVER = {"http.request.method", "http.response.status_code", "http.route", "url.path", "url.scheme"}
_CLIENT = {"http.request.method", "server.address", "server.port"}
_GENERATIVE = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"}
_TYPES: Mapping[str, type] = {
    "gen_ai.request.max_tokens": int,
    "gen_ai.request.temperature": float,
    "gen_ai.request.top_p": float,
    "gen_ai.request.seed": int,
    "gen_ai.response.finish_reasons": list,
    "gen_ai.response.model": str,
    "gen_ai.response.time_to_first_chunk": float,
    "gen_ai.usage.input_tokens": int,
    "gen_ai.usage.output_tokens": int,
    "http.response.status_code": int,
    "server.port": int,
}


def published_names() -> set[str]:
    """The names of all attributes in OpenTelemetry's tables, without those that were replaced."""
    found: set[str] = set()
    for module in iter_modules(published.__path__, f"{published.__name__}."):
        constants = vars(import_module(module.name)).items()
        found |= {value for key, value in constants if key.isupper() and isinstance(value, str)}
    return found - _DEPRECATED


def problems(spans: Sequence[CollectedSpan]) -> list[str]:
    """What Jaeger warns of, or cannot read, in these traces."""
    names, known = published_names(), {(span.trace_id, span.span_id): span for span in spans}
    found = []
    for span in spans:
        parent = known.get((span.trace_id, span.parent_id))
        why = [*_times(span, parent), *_status(span), *_conventions(span, names)]
        found += [f"{span.name} {span.trace_id}: {each}" for each in why]
    return found


def _times(span: CollectedSpan, parent: CollectedSpan | None) -> Iterator[str]:
    if span.ended <= span.began:
        yield "negative duration detected"
    if parent is None and span.parent_id not in ("", CLIENT):
        yield "its parent is missing"
    if parent is not None and not parent.began <= span.began < span.ended <= parent.ended:
        yield f"it is not within {parent.name}"
    if any(not span.began <= at <= span.ended for _, at in span.events):
        yield "an event is not within it"


def _status(span: CollectedSpan) -> Iterator[str]:
    if span.failed != ("error.type" in span.attributes):
        yield f"error.type {span.attributes.get('error.type')} with failed = {span.failed}"
    if span.failed and span.message in ("", "served"):
        yield f"an error called {span.message!r}"


def _conventions(span: CollectedSpan, names: set[str]) -> Iterator[str]:
    has = span.attributes
    if unknown := [name for name in has if name not in names and not name.startswith(_OWN)]:
        yield f"unknown attributes {unknown}"
    wanted = {"server": _SERVER, "client": _CLIENT}.get(span.kind, set())
    if has.get("http.route", "").startswith("/v1/") or "url.full" in has:
        wanted = wanted | (_GENERATIVE if "gen_ai.operation.name" in has else set())
    if missing := sorted(wanted - has.keys()):
        yield f"no {missing}"
    if wrong := [name for name, kind in _TYPES.items() if name in has and not _is(has[name], kind)]:
        yield f"wrong types of {wrong}"


def _is(value: Any, kind: type) -> bool:
    return type(value) is kind
