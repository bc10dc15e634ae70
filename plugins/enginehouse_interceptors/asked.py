"""What requests ask, and patterns of the configuration that look for something in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse import ConfigError
from enginehouse_kit.interceptors import InterceptedRequest

_object = msgspec.json.Decoder(dict[str, Any]).decode


def asked_of(request: InterceptedRequest) -> dict[str, Any]:
    """The decoded body; empty if it is no JSON object."""
    try:
        return _object(request.body)
    except (ValueError, RecursionError):
        return {}


def compiled(patterns: Sequence[str], key: str) -> list[re.Pattern[str]]:
    """The regular expressions of a ``key``, each with flags and groups of its own. Raises ``ConfigError``."""
    try:
        return [re.compile(each) for each in patterns]
    except re.error as error:
        raise ConfigError(f"is no regular expression: {error}", key=key) from None
