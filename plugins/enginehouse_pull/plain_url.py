"""A GGUF file at any address."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from string import punctuation
from urllib.parse import quote, unquote, urlsplit

from enginehouse import ModelSource
from enginehouse.model_sources import PulledModel, PullProgress, PullSettings
from enginehouse_pull.download import RemoteFile, download, inner_path


class PlainUrl(ModelSource):
    """``https://HOST/FILE.gguf``. The file has no known checksum, so only its length is checked.

    Each address has a folder of its own: those of one host often have files of the same name.
    """

    def takes(self, name: str) -> bool:
        try:
            parts = urlsplit(name)
        except ValueError:  # a bracket that is not closed
            return False
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path.lower().endswith(".gguf")

    def pull(self, name: str, settings: PullSettings, folder: Path, progress: PullProgress) -> PulledModel:
        parts = urlsplit(name)
        file = PurePosixPath(unquote(parts.path)).name
        path = inner_path(parts.hostname or "", hashlib.sha256(name.encode()).hexdigest()[:16], file)
        pulled = download([RemoteFile(url=quote(name, safe=punctuation), path=path)], folder, progress)
        return PulledModel(path=path, files=pulled)
