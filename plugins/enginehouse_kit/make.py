"""Makers of what plugins get, with defaults for everything that a test does not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse import AttemptRecord, Body, Candidate, InferenceRequest, RequestRecord, Requirements
from enginehouse.routing_facts import Load, Reason

MODEL = "llama3:8b"


def candidate(
    backend: str = "gpu-1", model: str = MODEL, *, pending: int = 0, avg_latency_ms: float = 0.0, **fields: Any
) -> Candidate:
    """A healthy, ready and idle candidate. ``fields`` override fields of ``Candidate``."""
    fields.setdefault("replica", f"{model}@{backend}")
    fields.setdefault("load", Load(pending, avg_latency_ms))
    return Candidate(model=model, backend=backend, **fields)


def requirements(model: str = MODEL, **fields: Any) -> Requirements:
    """The requirements of a plain chat request. ``fields`` override fields of ``Requirements``."""
    return Requirements(model=model, **fields)


def request(
    body: Mapping[str, Any] | None = None,
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
) -> InferenceRequest:
    """A request, as extractors see it. ``body`` gets a ``model`` if it has none."""
    raw = msgspec.json.encode({"model": MODEL, **(body or {})})
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return InferenceRequest(path, lines, raw, msgspec.json.decode(raw, type=Body))


def request_record(model: str | None = MODEL, backend: str = "gpu-1", **fields: Any) -> RequestRecord:
    """The record of a chat request that ``backend`` served in 2 s; with no ``model``, of one that was routed nowhere.

    ``fields`` override fields of ``RequestRecord``.
    """
    known: dict[str, Any] = {
        "id": "request-1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "served",
        "arrived": 100.0,
        "ended": 102.0,
    }
    if model is None:
        known |= {"status": 404, "outcome": "model_not_found", "code": "model_not_found", "asked": MODEL}
    else:
        known |= {"asked": model, "model": model, "backend": backend, "driver": "openai"}
        known |= {"routed": 100.125, "sent": 100.25, "first_byte": 100.5, "attempts": (_served(model, backend),)}
        known |= {"tokens_in": 12, "tokens_out": 34, "bytes_in": 80, "bytes_out": 400}
    return RequestRecord(**known | fields)


def _served(model: str, backend: str) -> AttemptRecord:
    return AttemptRecord(
        backend=backend,
        driver="openai",
        replica=f"{model}@{backend}",
        model=model,
        reason=Reason.MATCH,
        attempted=(model,),
        outcome="served",
        why="",
        status=200,
        queued=False,
        began=100.125,
        granted=None,
        sent=100.25,
        first_byte=100.5,
        ended=102.0,
    )
