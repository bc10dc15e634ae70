"""A stream as another process can continue it."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.relay.continuation.progress import AnswerProgress


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a stream that its client has, from the engine of ``model`` at ``backend``.

    ``body``: the request as that engine got it, but for the fields that the gateway had added. ``common``: JSON values.
    """

    backend: str
    model: str
    body: bytes
    common: dict[str, bytes]
    roles: set[int]
    usage: dict[str, Any] | None
    progress: AnswerProgress
