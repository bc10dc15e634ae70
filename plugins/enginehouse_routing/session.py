"""Finds the session of a request, as ``routing.session`` says."""

from __future__ import annotations

from typing import ClassVar

from enginehouse import Extractor, InferenceRequest, Requirements
from enginehouse.requests import kept_name
from enginehouse_routing.structs import SessionIdConfig


class SessionExtractor(Extractor):
    """Sets ``session`` to the first of ``sources`` that the request has, such as ``header:x-session-id``."""

    Config: ClassVar[type[SessionIdConfig]] = SessionIdConfig

    def __init__(self, config: SessionIdConfig) -> None:
        parts = [each.partition(":") for each in config.sources]
        self._sources = [(where == "header", name) for where, _, name in parts]

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        for in_header, name in self._sources:
            found = _header(request, name) if in_header else _field(request, name)
            if found:
                requirements.session = kept_name(found)
                return


def _header(request: InferenceRequest, name: str) -> str:
    value = request.header(name.lower().encode())
    return value.decode(errors="replace") if value else ""


def _field(request: InferenceRequest, name: str) -> str:
    """A string or a whole number; other values name no session."""
    if f'"{name}"'.encode() not in request.raw:  # decoding the whole body takes long
        return ""
    value = request.body.user if name == "user" else request.json.get(name)
    return value if isinstance(value, str) else str(value) if type(value) is int else ""
