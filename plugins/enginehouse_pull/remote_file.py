"""A file of a model that is to be downloaded."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from enginehouse.errors import PullFailed


class RemoteFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file. ``size`` in bytes is ``None``, and ``sha256`` empty, where the source does not tell them."""

    url: str
    path: str
    """Where it belongs, relative to the folder of models."""
    size: int | None = None
    sha256: str = ""


def inner_path(*parts: str) -> str:
    """``parts`` as a path that stays in the folder of models. Raises ``PullFailed`` for one that would leave it."""
    path = PurePosixPath(*parts)
    if path.is_absolute() or ".." in path.parts or "\\" in str(path) or not str(path).isprintable():
        raise PullFailed(f"the source names a file {str(path)!r}, which would lie outside of the folder of models")
    return str(path)
