"""Secrets: read from the file, the environment or other files, and never printed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

MASK = "***"


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


def read_secret(text: str, folder: Path, environ: Mapping[str, str]) -> Secret:
    """The secret that ``text`` is or refers to. Paths are relative to ``folder``. Raises ``SecretError``."""
    refuse_mask(text, 'put the secret itself here, "env:NAME" or "file:PATH"')
    kind, _, place = text.partition(":")
    if kind == "env":
        value = environ.get(place)
        if value is None:
            raise SecretError(f"the environment variable {place} is not set", "set it, or name another")
    elif kind == "file":
        value = _read(folder, place)
    else:
        return Secret(text)
    if not value:
        raise SecretError(f"{text} is empty", "put the secret there")
    return Secret(value, text)


def refuse_mask(text: str, remedy: str) -> None:
    """Raise ``SecretError`` for the mask that ``check`` prints instead of a secret."""
    if text == MASK:
        raise SecretError("is the mask of a secret", remedy)


def _read(folder: Path, place: str) -> str:
    path = Path(place)
    try:
        path = folder / path.expanduser()
        return path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except RuntimeError as error:  # ~NAME, where no user has that name
        raise SecretError(f"cannot find {path}: {error}", "name the file by its whole path") from None
    except UnicodeDecodeError:
        raise SecretError(f"{path} is not UTF-8 text", "put only the secret there") from None
    except OSError as error:
        raise SecretError(f"cannot read {path}: {error.strerror}", "create the file, or name another") from None


def has_mask(text: str) -> bool:
    """Whether ``text``, a command or an argument, has a mask where a value was."""
    return text == MASK or re.search(rf"(?:[=:\s]){re.escape(MASK)}(?=$|[\s\"'])", text) is not None
