"""The requirements of a request."""

from __future__ import annotations

from typing import Any

import msgspec


class Requirements(msgspec.Struct, kw_only=True):
    """The requirements of one request. Extractors write them; filters, scorers and strategies read them."""

    model: str
    """The model that the client asked for; an alias is not resolved."""
    path: str = "/v1/chat/completions"
    """The endpoint."""
    stream: bool = False
    estimated_tokens: int = 0
    """Prompt tokens, estimated as one per four characters of text."""
    needs_vision: bool = False
    needs_tools: bool = False
    needs_json_mode: bool = False
    caller: str | None = None
    """The name of the caller's key. The gateway sets it when the extractors have run."""
    user: str | None = None
    """The end user that the body names, or a hash of the name (``auth.hash_users``). Set at the same time."""
    zones: tuple[str, ...] = ()
    """The privacy zones that it must not leave. The gateway sets them with the caller."""
    session: str = ""
    """The session that it belongs to, as ``routing.session`` says; found only if a strategy has ``reads_session``."""
    extra: dict[str, Any] = {}
    """Values of plugins. Begin each key with the name of your plugin."""
