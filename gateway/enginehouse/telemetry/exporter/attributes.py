"""Names and attributes of spans, after OpenTelemetry's semantic conventions for generative AI and HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from enginehouse.domain.route import RouteDetails
from enginehouse.telemetry.exporter.content import answer_attributes, prompt_attributes
from enginehouse.telemetry.exporter.messages import RequestRecord, UpstreamRecord
from enginehouse.telemetry.record import SwapRecord, first_answered

Attributes = dict[str, Any]

_OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
    "/v1/audio/speech": "speech",
}
_FAILED = 400
_UNKNOWN = RouteDetails("", 0)


def root_name(record: RequestRecord) -> str:
    """Such as ``chat llama3:8b``; the method and the path of a request that is passed to an engine unread."""
    operation = _OPERATIONS.get(record.path)
    return f"{operation} {record.requested}".rstrip() if operation else f"{record.method} {record.path}"


def root_attributes(record: RequestRecord) -> Attributes:
    """Of a request's own span."""
    found: Attributes = {
        "gen_ai.provider.name": "enginehouse",
        "http.request.method": record.method,
        "http.response.status_code": record.ending.status,
        "url.path": record.path,
        "enginehouse.request_id": record.request_id.decode(),
        "enginehouse.attempts": len(record.attempts),
        "enginehouse.bytes": record.ending.sent_bytes,
    }
    if operation := _OPERATIONS.get(record.path):
        found["gen_ai.operation.name"] = operation
    if record.stream:
        found["gen_ai.request.stream"] = True
    if record.requested:
        found["gen_ai.request.model"] = record.requested
    found.update(_token_attributes(record))
    found.update(_answer_attributes(record))
    if record.question or record.answer:
        with suppress(AttributeError, KeyError, TypeError):  # clients and engines may send anything
            found.update(prompt_attributes(record.question))
            found.update(answer_attributes(record.answer, record.stream))
    return found


def _token_attributes(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    tokens = record.ending.tokens
    if tokens.source:
        yield "enginehouse.tokens.source", tokens.source
        yield "gen_ai.usage.output_tokens", tokens.output
    if tokens.source == "usage":
        yield "gen_ai.usage.input_tokens", tokens.input


def _answer_attributes(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    if record.ending.events:
        yield "enginehouse.chunks", record.ending.events
    if record.attempts:
        last = record.attempts[-1]
        yield "gen_ai.response.model", last.model
        yield "enginehouse.backend", last.backend
        yield "enginehouse.reason", last.reason
        if record.stream and (first := first_answered(record.attempts).first_byte):
            yield "gen_ai.response.time_to_first_chunk", first - record.began
    if record.ending.status >= _FAILED or record.ending.outcome != "served":
        yield "error.type", record.ending.outcome if record.ending.outcome != "served" else str(record.ending.status)


def route_attributes(attempt: UpstreamRecord) -> Attributes:
    """Of the span of a routing decision."""
    routing = attempt.routing or _UNKNOWN
    found: Attributes = {
        "enginehouse.strategy": routing.strategy,
        "enginehouse.reason": attempt.reason,
        "enginehouse.attempted": attempt.attempted,
        "enginehouse.candidates": routing.candidates,
        "enginehouse.replica": attempt.replica,
    }
    found |= {f"enginehouse.dropped.{name}": count for name, count in routing.dropped.items()}
    if routing.score is not None:
        found["enginehouse.score"] = routing.score
    return found


def upstream_attributes(attempt: UpstreamRecord, stream: bool) -> Attributes:
    """Of the span of a call to an engine."""
    host, _, port = attempt.address.rpartition(":")
    found: Attributes = {
        "gen_ai.request.model": attempt.model,
        "enginehouse.backend": attempt.backend,
        "enginehouse.replica": attempt.replica,
        "enginehouse.reason": attempt.reason,
        "enginehouse.outcome": attempt.outcome,
    }
    if host and port.isdigit():
        found |= {"server.address": host.strip("[]"), "server.port": int(port)}
    if attempt.status:
        found["http.response.status_code"] = attempt.status
    if stream and attempt.first_byte:
        found["gen_ai.response.time_to_first_chunk"] = attempt.first_byte - attempt.sent
    if attempt.outcome != "served":
        found["error.type"] = str(attempt.status) if attempt.outcome == "answered" else attempt.outcome
    return found


def swap_attributes(swap: SwapRecord) -> Attributes:
    """Of the span of a swap that the request waited for."""
    return {
        "enginehouse.replica": swap.target,
        "enginehouse.swap.evicted": swap.evicted,
        "enginehouse.swap.outcome": swap.outcome,
    }
