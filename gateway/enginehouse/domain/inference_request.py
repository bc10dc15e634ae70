"""A client's request, as plugins see it. Compiled: every request has one."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.domain.request import Body, Headers


class InferenceRequest:
    """A request, as extractors see it.

    ``path`` is the endpoint, such as ``/v1/chat/completions``; ``raw`` is the body as received, ``body`` its decoded
    fields.
    """

    __slots__ = ("_json", "body", "headers", "path", "raw")

    def __init__(self, path: str, headers: Headers, raw: bytes, body: Body) -> None:
        self.path = path
        self.headers = headers
        self.raw = raw
        self.body = body
        self._json: dict[str, Any] | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header ``name``, which must be in lower case; ``None`` if there is none."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def json(self) -> dict[str, Any]:
        """The whole body, for fields that ``Body`` does not have. Decoded on first use."""
        if self._json is None:
            self._json = msgspec.json.decode(self.raw)
        return self._json
