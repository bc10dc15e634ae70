"""Secrets: read from the file, the environment or other files, and never printed. Possible ones are masked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MASK = "***"
_HARMLESS = re.compile(r"-?[0-9]{1,5}([.,:-][0-9]{1,5})*|true|false|yes|no|on|off|(\$\{[^}]*\})+|", re.IGNORECASE)
_WORDS = r"(?:[a-z0-9.]+[-_]+)*(?:api)?(?:key|keys|token|secret|password|passwd)"
_NAME = re.compile(_WORDS, re.IGNORECASE)
_FLAG = re.compile(rf"--?{_WORDS}", re.IGNORECASE)
_VALUE = re.compile(
    rf"(?P<name>(?<![\w-])(?:-{{0,2}}{_WORDS}=|--?{_WORDS}\s+|authorization:\s*(?:(?:bearer|basic)\s+)?|{_WORDS}:\s*))"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"']+)",
    re.IGNORECASE,
)


class Secret(str):
    """A secret of the configuration. Its ``repr`` is a mask.

    ``reference`` is the text in the file, ``env:NAME`` or ``file:PATH``; empty if the file has the secret itself.
    """

    __slots__ = ("reference",)
    reference: str

    def __new__(cls, value: str, reference: str = "") -> Secret:
        secret = super().__new__(cls, value)
        secret.reference = reference
        return secret

    def __repr__(self) -> str:
        return repr(MASK)


class SecretError(ValueError):
    """A secret cannot be read."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def shown(text: str) -> str:
    """``text`` if it is a number, a list of numbers, a boolean or a placeholder, else the mask."""
    return text if _HARMLESS.fullmatch(text) else MASK


def read_secret(text: str, folder: Path, environ: Mapping[str, str]) -> Secret:
    """The secret that ``text`` is or refers to. Paths are relative to ``folder``. Raises ``SecretError``."""
    refuse_mask(text, 'put the secret itself here, "env:NAME" or "file:PATH"')
    kind, _, place = text.partition(":")
    if kind == "env":
        value = environ.get(place)
        if value is None:
            raise SecretError(f"the environment variable {place} is not set", "set it, or name another")
    elif kind == "file":
        value = _read(folder / Path(place).expanduser())
    else:
        return Secret(text)
    if not value:
        raise SecretError(f"{text} is empty", "put the secret there")
    return Secret(value, text)


def refuse_mask(text: str, remedy: str) -> None:
    """Raise ``SecretError`` for the mask that ``check`` prints instead of a secret."""
    if text == MASK:
        raise SecretError("is the mask of a secret", remedy)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(f"{path} is not UTF-8 text", "put only the secret there") from None
    except OSError as error:
        raise SecretError(f"cannot read {path}: {error.strerror}", "create the file, or name another") from None


def masked_line(text: str) -> str:
    """``text``, a command, without the values of flags, variables and headers such as ``--api-key``."""
    return _VALUE.sub(lambda match: match["name"] + shown(match["value"]), text)


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
    if isinstance(value, str) and _NAME.fullmatch(name) and not value.startswith(("env:", "file:")):
        return shown(value)
    return value


def has_mask(text: str) -> bool:
    """Whether ``text``, a command or an argument, has a mask where a value was."""
    return text == MASK or re.search(rf"(?:[=:\s]){re.escape(MASK)}(?=$|[\s\"'])", text) is not None
