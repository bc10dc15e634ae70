"""Secrets: where they come from, and how they stay unseen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MASK = "***"


class Secret(str):
    """A secret from the configuration: itself as a string, a mask in ``repr``.

    ``reference`` is how the file names it (``env:NAME``, ``file:PATH``), empty when the file holds it in plain text.
    """

    __slots__ = ("reference",)
    reference: str

    def __new__(cls, value: str, reference: str = "") -> Secret:
        """``value`` is the secret itself."""
        secret = super().__new__(cls, value)
        secret.reference = reference
        return secret

    def __repr__(self) -> str:
        return repr(MASK)


class SecretError(ValueError):
    """A secret that cannot be had, and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def read_secret(text: str, folder: Path, environ: Mapping[str, str]) -> Secret:
    """The secret that ``text`` is or refers to; paths are relative to ``folder``. Raises ``SecretError``."""
    if text == MASK:
        raise SecretError("holds the mask of a secret", 'put the secret itself here, "env:NAME" or "file:PATH"')
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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(f"{path} is not UTF-8 text", "put only the secret there") from None
    except OSError as error:
        raise SecretError(f"cannot read {path}: {error.strerror}", "create the file, or name another") from None
