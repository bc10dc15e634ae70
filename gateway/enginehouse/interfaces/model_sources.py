"""Model sources: download the files of models, such as from a hub."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from enginehouse.config.schema import PullSettings

PullProgress = Callable[[int, int | None], None]
"""Takes the bytes that are there and those of the whole model, ``None`` if unknown. May raise, to end the download."""


class PulledFile(msgspec.Struct, frozen=True, kw_only=True):
    """One downloaded file. ``path`` is relative to the folder of models; ``sha256`` is empty if the source has none."""

    path: str
    size: int
    sha256: str = ""


class PulledModel(msgspec.Struct, frozen=True, kw_only=True):
    """A downloaded model."""

    path: str
    """The file or folder that an engine loads, relative to the folder of models."""
    files: Sequence[PulledFile]


class ModelSource(ABC):
    """Downloads models that have names of one form, such as ``hf.co/ORG/REPO``."""

    @abstractmethod
    def takes(self, name: str) -> bool:
        """Whether ``name`` is a model of this source."""

    @abstractmethod
    def pull(self, name: str, settings: PullSettings, folder: Path, progress: PullProgress) -> PulledModel:
        """Download the model into ``folder``; resume an earlier download.

        Runs in a thread of its own, so it may block. Each file appears under its name only when it is whole. Raises
        ``PullFailed`` with what to do about it.
        """
