"""What one gateway leaves to the next: which engines run or sleep, what they take, and the right to act on them."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from platformdirs import user_state_path

from enginehouse.config.environment import STATE_DIR
from enginehouse.domain.errors import ShuttingDown
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.interfaces.places import Place

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_FOOTPRINTS = 1000


class _KeptFile(Generic[T]):
    """A JSON file with one value of ``type``. ``lost``: what follows if it cannot be read or written.

    ``was_read``: whether there was a value.
    """

    def __init__(self, path: Path, type: type[T], lost: str) -> None:
        self._path = path
        self._type = type
        self._lost = lost
        self._is_left = False
        self._unwritten: T | None = None
        self.was_read = False

    def read(self, otherwise: T) -> T:
        """The value; ``otherwise`` if there is none that can be read."""
        try:
            value = msgspec.json.decode(self._path.read_bytes(), type=self._type)
            self.was_read = True
            return value
        except FileNotFoundError:
            return otherwise
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("%s cannot be read, so %s: %s", self._path, self._lost, error)
            return otherwise

    def write(self, value: T) -> None:
        """Replace the value."""
        if self._is_left:
            self._unwritten = value
            return
        try:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(value)))
        except OSError as error:
            _log.warning("%s cannot be written, so %s: %s", self._path, self._lost, error)

    def leave(self) -> None:
        """Leave the file to another gateway: keep what would be written, for ``take_back``."""
        self._is_left = True

    def take_back(self) -> None:
        """Write to the file again."""
        self._is_left = False
        if self._unwritten is not None:
            self.write(self._unwritten)
            self._unwritten = None


class Footprints:
    """The most bytes measured for each model by its launch line, as an ``Engine`` names both.

    ``known``: all of them, those measured last at the end. Where the files of a model tell a size too, that one is kept
    beside it.
    """

    def __init__(self, folder: Path) -> None:
        self.file = _KeptFile(folder / "footprints.json", dict[str, int], "sizes of models are measured again")
        self.known = self.file.read({})

    def forget_others(self, key: str, estimate: int) -> bool:
        """Forget what was measured if the files told another ``estimate`` then. Returns whether that is so."""
        files = f"{key} files"
        before = self.known.get(files, estimate)
        if before != estimate:
            self.known.pop(key, None)
        self.put(files, estimate)
        return before != estimate

    def put(self, key: str, size: int) -> None:
        """Keep ``size``, and drop the oldest ones if there are too many."""
        if self.known.get(key) == size:
            return
        self.known.pop(key, None)
        self.known[key] = size
        for oldest in list(self.known)[:-_MOST_FOOTPRINTS]:
            del self.known[oldest]
        self.file.write(self.known)


class TakenBack(NamedTuple):
    """What a gateway has done that failed to take over: the names of the engines that it has launched, and woken.

    It stops none that it takes over, and puts none to sleep, while the earlier gateway may still use them.
    """

    launched: Collection[str]
    woken: Collection[str]


class Sleepers:
    """The ``names`` of engines that were put to sleep, from before they are asked until they are ready again or gone.

    Not every engine reports whether it sleeps, and some break if they are woken while they are awake.
    """

    def __init__(self, folder: Path) -> None:
        self._file = _KeptFile(folder / "asleep.json", frozenset[str], "a sleeping engine may not be woken")
        self.names = self._file.read(frozenset())
        self._left: frozenset[str] = frozenset()

    def follow(self, name: str, state: ReplicaState, *, may_sleep: bool) -> None:
        """Note that the engine ``name`` has the new ``state``. One that stops and may sleep is asked to sleep next."""
        names = self.names
        if state is ReplicaState.READY or state in AT_REST:
            names = names - {name}
        elif state is ReplicaState.STOPPING and may_sleep:
            names = names | {name}
        if names != self.names:
            self.names = names
            self._file.write(names)

    def leave(self) -> None:
        """Leave the file to another gateway."""
        self._left = self.names
        self._file.leave()

    def take_back(self) -> Collection[str]:
        """Use the file again. Returns the names that the other gateway has removed from it, and removes them too."""
        left, self._left = self._left, frozenset()
        woken = left - self._file.read(left)
        self._file.take_back()
        self.names -= woken
        self._file.write(self.names)
        return woken


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running engine: its host, the fingerprint of its launch line, and the handle of its process.

    ``gpus``: its ``CUDA_VISIBLE_DEVICES``, empty if it has none. ``placed``: where its launcher has placed it; ``None``
    for a port of this machine.
    """

    host: str
    port: int
    fingerprint: str
    handle: dict[str, Any]
    gpus: str = ""
    placed: Place | None = None

    @property
    def place(self) -> Place:
        """Where it listens."""
        return self.placed or Place(port=self.port)


def state_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The state folder of the gateway called ``name``."""
    named = environ.get(STATE_DIR)
    parent = Path(named).expanduser() if named else user_state_path("enginehouse", appauthor=False)
    return parent.absolute() / quote(name, safe="").replace(".", "%2E")


def replace_file(path: Path, content: bytes, *, lasting: bool = False) -> None:
    """Replace a file in one step. Nobody else may read it, because it may hold a secret. Raises ``OSError``.

    ``lasting``: even a crash of the machine leaves the old or the new content, but it costs some milliseconds.
    """
    unfinished = path.with_suffix(".new")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    unfinished.replace(path)


class StateFile:
    """The engines of one gateway in a folder of its own. ``logs`` is the folder for their output.

    ``records``: the engines that run, or ran when the last gateway ended, by name.
    ``footprints``: how much memory models have taken. ``sleepers``: which engines may be asleep.

    If another gateway uses the folder, or it is not writable, a temporary folder takes its place and a warning is
    logged: the gateway works, but the next one will not adopt its engines.

    ``lock``: the descriptor of the folder's lock, from the gateway that has left the folder to this one.
    """

    def __init__(self, folder: Path, lock: int | None = None) -> None:
        self.lock = lock
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if lock is None:
                self.lock = _lock(folder / "lock")
        except BlockingIOError:
            _log.warning(
                "Another gateway of this name uses %s, so the next one will not adopt the engines of this one "
                "(give each a server.name of its own)",
                folder,
            )
        except OSError as error:
            _log.warning("The next gateway will not adopt the engines of this one: %s", error)
        self.folder = folder if self.lock is not None else Path(tempfile.mkdtemp(prefix="enginehouse-"))
        self.logs = self.folder / "logs"
        self.logs.mkdir(exist_ok=True)
        lost = "running engines are found by their marks"
        self._file = _KeptFile(self.folder / "engines.json", dict[str, EngineRecord], lost)
        self.records = self._file.read({})
        self._left: Mapping[str, EngineRecord] = {}
        self.footprints = Footprints(self.folder)
        self.sleepers = Sleepers(self.folder)

    @property
    def is_lost(self) -> bool:
        """Whether there were no records, so that engines may run which have none."""
        return not self._file.was_read

    def put(self, name: str, record: EngineRecord) -> None:
        """Record the engine ``name``."""
        self.records[name] = record
        self._file.write(self.records)

    def remove(self, name: str, record: EngineRecord) -> None:
        """Remove the engine ``name``, unless a newer record has replaced ``record``."""
        if self.records.get(name) is record:
            del self.records[name]
            self._file.write(self.records)

    def leave(self) -> None:
        """Leave the files to the gateway that gets the lock."""
        self._left = {**self.records}
        for each in (self._file, self.footprints.file, self.sleepers):
            each.leave()

    def take_back(self) -> TakenBack:
        """Use the files again, with what the other gateway has done meanwhile."""
        theirs = self._file.read({}).items()
        new = {name: each for name, each in theirs if name not in self.records and each != self._left.get(name)}
        self.records.update(new)
        for file in (self._file, self.footprints.file):
            file.take_back()
        self._file.write(self.records)
        return TakenBack(new.keys(), self.sleepers.take_back())

    def close(self) -> None:
        """Release the folder for another gateway, unless that has the lock already."""
        if self.lock is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            os.close(self.lock)


def _lock(path: Path) -> int:
    """Lock a file until it is closed or the process ends. Raises ``BlockingIOError`` if it is locked already."""
    # not by the existence of a file: the kernel ends a lock, however the gateway dies
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class EngineOwnership:
    """The right of this gateway to start, stop, wake and put to sleep its engines. Each of these is an *act*.

    While it is paused, acts wait. Once it is given up, engines are the successor's: none of them is touched any more.
    """

    def __init__(self) -> None:
        self._held = asyncio.Event()
        self._held.set()
        self._acts = 0
        self._none_acts = asyncio.Event()
        self._none_acts.set()
        self.given_up = False

    @property
    def held(self) -> bool:
        """Whether acts may begin now."""
        return self._held.is_set() and not self.given_up

    @asynccontextmanager
    async def act(self) -> AsyncIterator[None]:
        """One act, in its turn. Raises ``ShuttingDown`` once the engines are another gateway's."""
        await self._held.wait()
        if self.given_up:
            raise ShuttingDown("Another gateway has taken over the engines; send the request again")
        self._acts += 1
        self._none_acts.clear()
        try:
            yield
        finally:
            self._acts -= 1
            if not self._acts:
                self._none_acts.set()

    async def pause(self) -> None:
        """Let no act begin, and return when those in progress have ended."""
        self._held.clear()
        await self._none_acts.wait()

    def resume(self) -> None:
        """Let acts begin again."""
        self._held.set()

    def give_up(self) -> None:
        """Leave the engines to another gateway, for good. Acts that wait end with an error."""
        self.given_up = True
        self._held.set()
