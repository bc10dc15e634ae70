"""What requests are called in spans: names that clients cannot make up."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.records import TracedRequest

_OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
    "/v1/audio/speech": "speech",
}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"})
_TO_ENGINES = "/upstream/"


def operation(path: str) -> str:
    """The operation of OpenTelemetry's conventions for generative AI; empty if the request is none."""
    return _OPERATIONS.get(path, "")


def route_of(path: str) -> str:
    """The template of the path. All others than those below ``/upstream/`` are as they stand."""
    return "/upstream/{model}/{path}" if path.startswith(_TO_ENGINES) else path


def method_of(method: str) -> str:
    """The method, if HTTP knows it."""
    return method if method in _METHODS else "_OTHER"


def root_name(request: TracedRequest) -> str:
    """Such as ``chat llama3:8b``, or ``chat`` for an unknown model; else the method and the route."""
    record = request.record
    if named := operation(record.path):
        return f"{named} {request.model}".rstrip()
    method = method_of(record.method)
    return f"{'HTTP' if method == '_OTHER' else method} {route_of(record.path)}"
