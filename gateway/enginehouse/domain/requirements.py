"""What a request needs."""

from __future__ import annotations

from typing import Any

import msgspec


class Requirements(msgspec.Struct, kw_only=True):
    """What one request needs, filled by the extractors and then only read.

    ``estimated_tokens`` is text characters / 4. ``extra`` is for plugins: a key should begin with its plugin's name.
    """

    model: str
    path: str = "/v1/chat/completions"
    stream: bool = False
    estimated_tokens: int = 0
    needs_vision: bool = False
    needs_tools: bool = False
    needs_json_mode: bool = False
    extra: dict[str, Any] = {}
