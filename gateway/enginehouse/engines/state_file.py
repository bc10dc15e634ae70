"""The running engines, in a file that the next gateway reads."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from platformdirs import user_state_path

from enginehouse.config.environment import STATE_DIR
from enginehouse.engines.footprints import Footprints
from enginehouse.engines.sleepers import Sleepers

_log = logging.getLogger(__name__)


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running engine: its host, the fingerprint of its launch line, and the handle of its process.

    ``gpus``: its ``CUDA_VISIBLE_DEVICES``, empty if it has none.
    """

    host: str
    port: int
    fingerprint: str
    handle: dict[str, Any]
    gpus: str = ""


def state_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The state folder of the gateway called ``name``."""
    named = environ.get(STATE_DIR)
    parent = Path(named).expanduser() if named else user_state_path("enginehouse", appauthor=False)
    return parent.absolute() / quote(name, safe="").replace(".", "%2E")


class StateFile:
    """The engines of one gateway, by name, in a folder of its own. ``logs`` is the folder for their output.

    ``footprints``: how much memory models have taken. ``sleepers``: which engines may be asleep.

    If another gateway uses the folder, or it is not writable, a temporary folder takes its place and a warning is
    logged: the gateway works, but the next one will not adopt its engines.
    """

    def __init__(self, folder: Path) -> None:
        self._lock: int | None = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(folder / "lock")
        except BlockingIOError:
            _log.warning(
                "Another gateway of this name uses %s, so the next one will not adopt the engines of this one "
                "(give each a server.name of its own)",
                folder,
            )
        except OSError as error:
            _log.warning("The next gateway will not adopt the engines of this one: %s", error)
        self.folder = folder if self._lock is not None else Path(tempfile.mkdtemp(prefix="enginehouse-"))
        self.logs = self.folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self._path = self.folder / "engines.json"
        self._records = self._read()
        self.footprints = Footprints(self.folder)
        self.sleepers = Sleepers(self.folder)

    @property
    def records(self) -> Mapping[str, EngineRecord]:
        """The engines that run, or ran when the last gateway ended."""
        return self._records

    def put(self, name: str, record: EngineRecord) -> None:
        """Record the engine ``name``."""
        self._records[name] = record
        self._write()

    def remove(self, name: str, record: EngineRecord) -> None:
        """Remove the engine ``name``, unless a newer record has replaced ``record``."""
        if self._records.get(name) is record:
            del self._records[name]
            self._write()

    def close(self) -> None:
        """Release the folder for another gateway."""
        if self._lock is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            os.close(self._lock)

    def _read(self) -> dict[str, EngineRecord]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, EngineRecord])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("%s cannot be read, so running engines are not adopted: %s", self._path, error)
            return {}

    def _write(self) -> None:
        text = msgspec.json.format(msgspec.json.encode(self._records))
        unfinished = self._path.with_suffix(".new")
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(text)
            unfinished.replace(self._path)
        except OSError as error:
            _log.warning("%s cannot be written, so the next gateway will not adopt the engines: %s", self._path, error)


def _lock(path: Path) -> int:
    """Lock a file until it is closed or the process ends. Raises ``BlockingIOError`` if it is locked already."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
