"""Names and attributes of spans, after OpenTelemetry's semantic conventions for generative AI and HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from enginehouse.domain.errors import shortened
from enginehouse.domain.request_record import AttemptRecord, RequestRecord
from enginehouse.domain.route import RouteDetails
from enginehouse.telemetry.exporter.content import answer_attributes, prompt_attributes
from enginehouse.telemetry.exporter.messages import TracedRequest
from enginehouse.telemetry.record import SwapRecord

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
    asked = shortened(record.asked or "")
    return f"{operation} {asked}".rstrip() if operation else f"{record.method} {record.path}"


def root_attributes(request: TracedRequest) -> Attributes:
    """Of a request's own span."""
    record = request.record
    found: Attributes = {
        "gen_ai.provider.name": "enginehouse",
        "http.request.method": record.method,
        "http.response.status_code": record.status,
        "url.path": record.path,
        "enginehouse.request_id": record.id,
        "enginehouse.attempts": len(record.attempts),
        "enginehouse.bytes": record.bytes_out,
    }
    if operation := _OPERATIONS.get(record.path):
        found["gen_ai.operation.name"] = operation
    if record.stream:
        found["gen_ai.request.stream"] = True
    if record.asked:
        found["gen_ai.request.model"] = shortened(record.asked)
    found.update(_token_attributes(record))
    found.update(_answer_attributes(record))
    if request.question or request.answer:
        with suppress(AttributeError, KeyError, TypeError):  # clients and engines may send anything
            found.update(prompt_attributes(request.question))
            found.update(answer_attributes(request.answer, record.stream))
    return found


def _token_attributes(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    if record.tokens_out is not None:
        yield "enginehouse.tokens.source", "usage"
        yield "gen_ai.usage.output_tokens", record.tokens_out
        yield "gen_ai.usage.input_tokens", record.tokens_in or 0
    elif record.events > 1:
        yield "enginehouse.tokens.source", "chunks"
        yield "gen_ai.usage.output_tokens", record.events - 1


def _answer_attributes(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    if record.events:
        yield "enginehouse.chunks", record.events
    if record.attempts:
        last = record.attempts[-1]
        yield "gen_ai.response.model", last.model
        yield "enginehouse.backend", last.backend
        yield "enginehouse.reason", last.reason.value
        if record.stream and record.first_byte is not None:
            yield "gen_ai.response.time_to_first_chunk", record.first_byte - record.arrived
    if record.status >= _FAILED or record.outcome != "served":
        yield "error.type", record.outcome if record.outcome != "served" else str(record.status)


def route_attributes(attempt: AttemptRecord) -> Attributes:
    """Of the span of a routing decision."""
    routing = attempt.details or _UNKNOWN
    found: Attributes = {
        "enginehouse.strategy": routing.strategy,
        "enginehouse.reason": attempt.reason.value,
        "enginehouse.attempted": attempt.attempted,
        "enginehouse.candidates": routing.candidates,
        "enginehouse.replica": attempt.replica,
    }
    found |= {f"enginehouse.dropped.{name}": count for name, count in routing.dropped.items()}
    if routing.score is not None:
        found["enginehouse.score"] = routing.score
    return found


def upstream_attributes(attempt: AttemptRecord, address: str, stream: bool) -> Attributes:
    """Of the span of a call to the engine at ``address``: its host and port, if known."""
    host, _, port = address.rpartition(":")
    found: Attributes = {
        "gen_ai.request.model": attempt.model,
        "enginehouse.backend": attempt.backend,
        "enginehouse.replica": attempt.replica,
        "enginehouse.reason": attempt.reason.value,
        "enginehouse.outcome": attempt.outcome,
    }
    if host and port.isdigit():
        found |= {"server.address": host.strip("[]"), "server.port": int(port)}
    if attempt.status:
        found["http.response.status_code"] = attempt.status
    if stream and attempt.first_byte is not None and attempt.sent is not None:
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
