"""A stream as another process can continue it."""

from __future__ import annotations

from typing import Any

import msgspec


class SavedProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ``AnswerProgress``."""

    shows_ids: bool
    text: str
    chars: int
    position: int
    base: int
    ids: list[int] | None
    seen: list[int]
    start: int
    anchor: tuple[int, int]
    steps: list[tuple[int, int]]
    prompt_ids: bytes | None
    prompt_tokens: int | None
    counted: int | None
    events: int
    ends: list[int] | None


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a stream that its client has, from the engine of ``model`` at ``backend``.

    ``body``: the request as that engine got it, but for the fields that the gateway had added. ``common``: JSON values.
    """

    backend: str
    model: str
    body: bytes
    common: dict[str, bytes]
    roles: list[int]
    finish: str | None
    usage: dict[str, Any] | None
    progress: SavedProgress
