"""Attributes of spans, after OpenTelemetry's semantic conventions for generative AI and HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from enginehouse import AttemptRecord, RequestRecord
from enginehouse.errors import shortened
from enginehouse.records import StreamGap, SwapRecord, TracedRequest
from enginehouse.routing_facts import RouteDetails
from enginehouse_otlp.operations import method_of, operation, route_of
from enginehouse_otlp.process.content import answer_attributes, prompt_attributes
from enginehouse_otlp.process.engine_answer import engine_answer
from enginehouse_otlp.process.parameters import parameter_attributes

Attributes = dict[str, Any]

_CLIENT_FAILED, _SERVER_FAILED = 400, 500
_NO_FAILURES = ("served", "moved", "overtaken", "client_left")
"""The outcomes of attempts that no engine failed; ``overtaken``: another one was first to begin."""


def root_error(record: RequestRecord) -> tuple[str, str] | None:
    """The type of the error that ended a request, and its message. A status below 500 is not an error of a server."""
    if record.status < _SERVER_FAILED:
        return None
    if record.code is None:
        return str(record.status), f"answered {record.status}"
    return record.code, record.message


def upstream_error(attempt: AttemptRecord) -> tuple[str, str] | None:
    """The type of an engine's error, and its message."""
    if attempt.status >= _CLIENT_FAILED:
        return str(attempt.status), f"answered {attempt.status}"
    return None if attempt.outcome in _NO_FAILURES else (attempt.outcome, attempt.why or attempt.outcome)


def root_attributes(request: TracedRequest) -> Attributes:
    """Of a request's own span."""
    record = request.record
    found: Attributes = {
        "http.request.method": method_of(record.method),
        "http.response.status_code": record.status,
        "http.route": route_of(record.path),
        "url.path": record.path,
        "url.scheme": "http",
        "enginehouse.request_id": record.id,
        "enginehouse.outcome": record.outcome,
        "enginehouse.attempts": len(record.attempts),
        "enginehouse.bytes": record.bytes_out,
    }
    if record.caller is not None:
        found["enginehouse.key"] = record.caller
    if record.code is not None:
        found["enginehouse.code"] = record.code
    if error := root_error(record):
        found["error.type"] = error[0]
    found.update(_genai_attributes(request, "enginehouse"))
    found.update(engine_answer(request.ends))
    if record.asked:
        found["gen_ai.request.model"] = shortened(record.asked)
    found.update(_token_attributes(record))
    found.update(_answer_attributes(record))
    if request.question or request.answer:
        with suppress(AttributeError, KeyError, TypeError):  # clients and engines may send anything
            found.update(prompt_attributes(request.question))
            found.update(answer_attributes(request.answer, record.stream))
    return found


def _genai_attributes(request: TracedRequest, provider: str) -> Iterator[tuple[str, Any]]:
    """The operation and its parameters."""
    record = request.record
    if named := operation(record.path):
        yield "gen_ai.operation.name", named
        yield "gen_ai.provider.name", provider
    if record.stream:
        yield "gen_ai.request.stream", True
    yield from parameter_attributes(request.parameters).items()


def _token_attributes(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    if record.tokens_out is not None:
        yield "enginehouse.tokens.source", "usage"
        yield "gen_ai.usage.output_tokens", record.tokens_out
        yield "gen_ai.usage.input_tokens", record.tokens_in or 0
        if record.tokens_cached is not None:
            yield "gen_ai.usage.cache_read.input_tokens", record.tokens_cached
    elif record.events > 1:
        yield "enginehouse.tokens.source", "chunks"
        yield "gen_ai.usage.output_tokens", record.events


def _answer_attributes(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    if record.events:
        yield "enginehouse.chunks", record.events
    if record.attempts:
        last = record.attempts[-1]
        yield "enginehouse.backend", last.backend
        yield "enginehouse.reason", last.reason.value
        if record.stream and record.first_byte is not None:
            yield "gen_ai.response.time_to_first_chunk", record.first_byte - record.arrived


def route_attributes(attempt: AttemptRecord) -> Attributes:
    """Of the span of a routing decision."""
    found: Attributes = {
        "enginehouse.reason": attempt.reason.value,
        "enginehouse.attempted": attempt.attempted,
        "enginehouse.replica": attempt.replica,
    }
    if (prefix := attempt.prefix) is not None:
        found |= {f"enginehouse.prefix.{name}": getattr(prefix, name) for name in prefix.__struct_fields__}
    return found | decision_attributes(attempt.details) if attempt.details is not None else found


def decision_attributes(details: RouteDetails) -> Attributes:
    """The figures of a decision."""
    found: Attributes = {"enginehouse.strategy": details.strategy, "enginehouse.candidates": details.candidates}
    found |= {f"enginehouse.dropped.{name}": count for name, count in details.dropped.items()}
    if details.score is not None:
        found["enginehouse.score"] = details.score
    if details.losers:
        named = (replica if score is None else f"{replica} {score:g}" for replica, score in details.losers)
        found["enginehouse.losers"] = tuple(named)
    if details.reasons:
        found["enginehouse.dropped"] = details.reasons
    return found


def upstream_attributes(request: TracedRequest, attempt: AttemptRecord, address: str, *, answered: bool) -> Attributes:
    """Of the span of a call to the engine at ``address``, if that is known; ``answered``: the client got its answer."""
    record = request.record
    found: Attributes = {
        "http.request.method": method_of(record.method),
        "gen_ai.request.model": attempt.model,
        "enginehouse.backend": attempt.backend,
        "enginehouse.replica": attempt.replica,
        "enginehouse.reason": attempt.reason.value,
        "enginehouse.outcome": attempt.outcome,
    }
    found.update(_genai_attributes(request, attempt.driver))
    found.update(_address_attributes(address, record.path))
    if answered:
        found.update(_token_attributes(record))
        found.update(engine_answer(request.ends))
    if attempt.status:
        found["http.response.status_code"] = attempt.status
    if record.stream and attempt.first_byte is not None and attempt.sent is not None:
        found["gen_ai.response.time_to_first_chunk"] = attempt.first_byte - attempt.sent
    if error := upstream_error(attempt):
        found["error.type"] = error[0]
    return found


def _address_attributes(address: str, path: str) -> Iterator[tuple[str, Any]]:
    """The host, the port and the URL. Calls below ``/upstream/`` have none: their queries and paths may be secret."""
    parts = urlsplit(address)
    if parts.hostname and parts.port:
        yield "server.address", parts.hostname
        yield "server.port", parts.port
        if operation(path):
            yield "url.full", address + path


def gap_attributes(attempt: AttemptRecord, gap: StreamGap) -> Attributes:
    """Of the span of a stream's way to another engine."""
    return {
        "enginehouse.replica": attempt.replica,
        "enginehouse.gap_ms": round(gap.seconds * 1000, 1),
        "enginehouse.cause": gap.cause,
        "enginehouse.tokens_read_again": gap.tokens,
    }


def swap_attributes(swap: SwapRecord) -> Attributes:
    """Of the span of a swap that the request waited for, which may have begun before."""
    return {
        "enginehouse.replica": swap.target,
        "enginehouse.swap.evicted": swap.evicted,
        "enginehouse.swap.outcome": swap.outcome,
        "enginehouse.swap.seconds": swap.ended - swap.began,
    }
