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
    extra: dict[str, Any] = {}
    """Values of plugins. Begin each key with the name of your plugin."""
