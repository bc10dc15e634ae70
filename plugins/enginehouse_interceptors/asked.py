"""What requests ask, and patterns of the configuration that look for something in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from enginehouse import ConfigError
from enginehouse_kit.interceptors import InterceptedRequest

_KEY: Final = "enginehouse_interceptors.key"
"""Where a request keeps its key, which takes some milliseconds for each MiB of its body."""
_object = msgspec.json.Decoder(dict[str, Any]).decode


def asked_of(request: InterceptedRequest) -> dict[str, Any]:
    """The decoded body; empty if it is no JSON object."""
    try:
        return _object(request.body)
    except (ValueError, RecursionError):
        return {}


def key_of(request: InterceptedRequest) -> bytes:
    """The same for the same body of the same caller at the same path, however its JSON is spelt."""
    key: bytes | None = vars(request).get(_KEY)
    if key is None:
        parts = [request.path, request.caller, asked_of(request) or request.body]
        vars(request)[_KEY] = key = sha256(msgspec.json.encode(parts, order="deterministic")).digest()
    return key


def compiled(patterns: Sequence[str], key: str) -> list[re.Pattern[str]]:
    """The regular expressions of a ``key``, each with flags and groups of its own. Raises ``ConfigError``."""
    try:
        return [re.compile(each) for each in patterns]
    except re.error as error:
        raise ConfigError(f"is no regular expression: {error}", key=key) from None
