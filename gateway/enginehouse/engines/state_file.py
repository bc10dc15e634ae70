"""Which engines run, written down where the next gateway finds it."""

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

_log = logging.getLogger(__name__)


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running engine: on which host, how it was launched, and what its launcher finds it by."""

    host: str
    port: int
    fingerprint: str
    handle: dict[str, Any]


def state_folder(address: str, port: int, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the gateway that listens on ``address`` and ``port`` keeps its state."""
    named = environ.get(STATE_DIR)
    parent = Path(named).expanduser() if named else user_state_path("enginehouse", appauthor=False)
    return parent.absolute() / quote(f"{address}-{port}", safe="")


class StateFile:
    """The engines of one gateway, by name, in a folder that it has for itself; ``logs`` is for what they print.

    Where the folder cannot be had, because another gateway uses it or it cannot be written to, this says so and keeps
    to a folder that nobody will find: everything works, except that no later gateway takes the engines over.
    """

    def __init__(self, folder: Path) -> None:
        self._lock: int | None = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(folder / "lock")
        except BlockingIOError:
            _log.warning("Another gateway uses %s: no later one will take over the engines of this one", folder)
        except OSError as error:
            _log.warning("No later gateway will take over the engines of this one: %s", error)
        self.folder = folder if self._lock is not None else Path(tempfile.mkdtemp(prefix="enginehouse-"))
        self.logs = self.folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self._path = self.folder / "engines.json"
        self._records = self._read()

    @property
    def records(self) -> Mapping[str, EngineRecord]:
        """What is known to run, or was when the last gateway ended."""
        return self._records

    def put(self, name: str, record: EngineRecord) -> None:
        """Remember the engine ``name``."""
        self._records[name] = record
        self._write()

    def remove(self, name: str, record: EngineRecord) -> None:
        """Forget the engine ``name``, unless another ``record`` of it has been put since."""
        if self._records.get(name) is record:
            del self._records[name]
            self._write()

    def close(self) -> None:
        """Let another gateway have the folder."""
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
            _log.warning("%s cannot be read, so engines that still run are not taken over: %s", self._path, error)
            return {}

    def _write(self) -> None:
        text = msgspec.json.format(msgspec.json.encode(self._records))
        unfinished = self._path.with_suffix(".new")
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(text)
            unfinished.replace(self._path)
        except OSError as error:
            _log.warning("%s cannot be written, so no later gateway will find the engines: %s", self._path, error)


def _lock(path: Path) -> int:
    """Lock a file until it is closed, or this process ends however it ends. Raises ``BlockingIOError`` if it is."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
