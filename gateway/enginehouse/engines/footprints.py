"""The measured sizes of models, in a file that the next gateway reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

_log = logging.getLogger(__name__)

_MOST = 1000


class Footprints:
    """The most bytes measured for each model by its launch line, as ``key`` names both."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "footprints.json"
        self._known = self._read()

    @property
    def known(self) -> Mapping[str, int]:
        """All of them, those measured last at the end."""
        return self._known

    @staticmethod
    def key(model: str, fingerprint: str) -> str:
        """The name of a model with a launch line."""
        return f"{model} {fingerprint}"

    def put(self, key: str, size: int) -> None:
        """Keep ``size``, and drop the oldest ones if there are too many."""
        if self._known.get(key) == size:
            return
        self._known.pop(key, None)
        self._known[key] = size
        for oldest in list(self._known)[:-_MOST]:
            del self._known[oldest]
        unfinished = self._path.with_suffix(".new")
        try:
            unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(self._known)))
            unfinished.replace(self._path)
        except OSError as error:
            _log.warning("%s cannot be written, so sizes of models are measured again: %s", self._path, error)

    def _read(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("%s cannot be read, so sizes of models are measured again: %s", self._path, error)
            return {}
