"""Makers of candidates, requirements and requests, with defaults for everything that a test does not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse.domain.load import Load
from enginehouse.domain.replica import Candidate, replica_name
from enginehouse.domain.request import Body, InferenceRequest
from enginehouse.domain.requirements import Requirements

MODEL = "llama3:8b"


def candidate(
    backend: str = "gpu-1", model: str = MODEL, *, pending: int = 0, avg_latency_ms: float = 0.0, **fields: Any
) -> Candidate:
    """A healthy, ready and idle candidate. ``fields`` override fields of ``Candidate``."""
    fields.setdefault("replica", replica_name(model, backend))
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
