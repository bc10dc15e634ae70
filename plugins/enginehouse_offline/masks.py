"""Hides what may be a secret in launch lines and in parameters of plugins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from enginehouse.config.secrets import MASK

_HARMLESS = re.compile(r"-?[0-9]{1,5}([.,:-][0-9]{1,5})*|true|false|yes|no|on|off|(\$\{[^}]*\})+|", re.IGNORECASE)
_WORDS = (
    r"(?:[a-z0-9.]+[-_]+)*(?:(?:api|auth|access|private|secret)?(?:keys?|token)|secret|password|passwd|credentials?"
    r"|cookie|hft)"
)
_NAME = re.compile(rf"{_WORDS}|authorization", re.IGNORECASE)
_FLAG = re.compile(rf"--?{_WORDS}", re.IGNORECASE)
_VALUE = re.compile(
    rf"(?P<name>(?<![\w-])(?:-{{0,2}}{_WORDS}=|--?{_WORDS}\s+|authorization:\s*(?:(?:bearer|basic)\s+)?|{_WORDS}[\"']?:\s*))"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"']+)",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"(?<=://)([^\s/?#:@\"']*):[^\s/?#@\"']+(?=@)")


def shown(text: str) -> str:
    """``text`` if it is a number, a list of numbers, a boolean or a placeholder, else the mask."""
    return text if _HARMLESS.fullmatch(text) else MASK


def masked_line(text: str) -> str:
    """``text``, a command, without the values of flags, variables and headers such as ``--api-key``, and passwords."""
    return _PASSWORD.sub(rf"\1:{MASK}", _VALUE.sub(lambda match: match["name"] + shown(match["value"]), text))


def masked_url(text: str) -> str:
    """``text``, if it has a URL, as ``masked_line``: without its password, and without parameters such as ``token``."""
    return masked_line(text) if "://" in text else text


def masked_arguments(words: Sequence[str]) -> list[str]:
    """``words``, the arguments of a command, as ``masked_line``."""
    follows = [False, *(_FLAG.fullmatch(word) is not None for word in words)]
    return [
        shown(word) if hidden and not word.startswith("-") else masked_line(word)
        for word, hidden in zip(words, follows, strict=False)
    ]


def masked_parameters(value: Any, name: str = "") -> Any:
    """``value``, a plugin's parameters, without the texts of keys such as ``api_key``. References stay."""
    if isinstance(value, dict):
        return {key: masked_parameters(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [masked_parameters(item, name) for item in value]
    if not isinstance(value, str) or value.startswith(("env:", "file:")):
        return value
    return shown(value) if _NAME.fullmatch(name) else masked_url(value)
