"""Downloads the files of a model."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from enginehouse.errors import PullFailed
from enginehouse.model_sources import PulledFile, PullProgress
from enginehouse_pull.web import BrokeOff, Refused, opened

_PIECE = 1 << 20
_SPARE = 256 << 20
"""Bytes that a download leaves free on the disk."""
_LOOK_EVERY_S = 0.2
_TRIES = 5
"""So many times in a row a download may break off without a byte more."""
_PAUSE_S = 1.0
"""By so much each pause between them is longer than the last."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def download(files: Sequence[RemoteFile], folder: Path, progress: PullProgress, token: str = "") -> list[PulledFile]:
    """Download ``files`` into ``folder``, unless they are there. Raises ``PullFailed``."""
    sizes = [file.size for file in files]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    pulled: list[PulledFile] = []
    try:
        _check_space(files, folder)
        for file in files:
            report = _behind(sum(each.size for each in pulled), total, progress)
            pulled.append(_Download(file, folder, report, token).run())
    except OSError as error:
        raise PullFailed(f"{error.filename or folder} cannot be written: {error.strerror or error}") from None
    return pulled


def _check_space(files: Sequence[RemoteFile], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    missing = sum(max(0, (file.size or 0) - _there(folder / file.path)) for file in files)
    free = shutil.disk_usage(folder).free
    if missing and free < missing + _SPARE:
        raise PullFailed(
            f"{folder} has {_shown(free)} free, and {_shown(missing + _SPARE)} are needed: "
            "make room, or set pull.folder"
        )


def _behind(before: int, total: int | None, progress: PullProgress) -> Callable[[int], None]:
    """Reports the bytes of a file as those of a model with ``before`` bytes before it."""
    return lambda done: progress(before + done, total)


def _there(path: Path) -> int:
    """The bytes of ``path`` that are there, whole or in part."""
    return next((each.stat().st_size for each in (path, _part(path)) if each.exists()), 0)


def _lock(part: BinaryIO) -> bool:
    try:
        fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _shown(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


class _Download:
    """The download of one file. What is there of it lies in ``NAME.part`` until it is whole and checked."""

    def __init__(self, file: RemoteFile, folder: Path, progress: Callable[[int], None], token: str) -> None:
        self._file = file
        self._path = folder / file.path
        self._progress = progress
        self._token = token
        self._size = file.size
        self._digest = hashlib.sha256()

    def run(self) -> PulledFile:
        """Download the file. Raises ``PullFailed``."""
        if self._is_there():
            self._progress(self._path.stat().st_size)
            return self._found()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as part:
            if self._is_there():  # another process was faster
                _part(self._path).unlink()
                return self._found()
            size = self._fill(part)
            self._check()
            os.fsync(part.fileno())
            os.replace(_part(self._path), self._path)
        sha256 = self._file.sha256 or self._digest.hexdigest()
        return PulledFile(path=self._file.path, size=size, sha256=sha256)

    def _is_there(self) -> bool:
        """Whether the file is whole. One without a checksum is not: any file may have its name, or an older one."""
        if not self._file.sha256 or not self._path.is_file() or self._file.size != self._path.stat().st_size:
            return False
        return _sha256(self._path) == self._file.sha256

    def _found(self) -> PulledFile:
        """The file that was there before."""
        return PulledFile(path=self._file.path, size=self._path.stat().st_size, sha256=self._file.sha256)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """The part that is there, for us alone: waits for another process that downloads the same file."""
        while True:
            with open(_part(self._path), "ab+") as part:
                while not _lock(part):
                    self._progress(os.fstat(part.fileno()).st_size)
                    time.sleep(_LOOK_EVERY_S)
                if _part(self._path).exists() and os.path.samestat(os.fstat(part.fileno()), _part(self._path).stat()):
                    yield part
                    return

    def _fill(self, part: BinaryIO) -> int:
        """Download until the file is whole; its size."""
        done, tries = self._begin_with(part), 0
        while self._size is None or done < self._size:
            before = done
            try:
                done = self._go_on(part, done)
                if self._size is None:
                    break
                if done < self._size:
                    raise BrokeOff(f"{self._file.url} ended after {done} of {self._size} bytes")
            except BrokeOff:
                done = part.tell()
                self._progress(done)  # raises if nobody waits any more
                tries = 0 if done > before else tries + 1
                if tries == _TRIES:
                    raise
                time.sleep(_PAUSE_S * tries)  # a network that fails for a moment does so at once
        return done

    def _begin_with(self, part: BinaryIO) -> int:
        """Read what an earlier download left; its size. Without a checksum, it may be of another file."""
        part.seek(0)
        while self._file.sha256 and (piece := part.read(_PIECE)):
            self._digest.update(piece)
            self._progress(part.tell())  # raises if nobody waits any more: a large part takes a minute
        if not self._file.sha256 or self._size is None or part.tell() > self._size:
            self._begin_anew(part)
        return part.tell()

    def _begin_anew(self, part: BinaryIO) -> None:
        part.seek(0)
        part.truncate()
        self._digest = hashlib.sha256()

    def _go_on(self, part: BinaryIO, done: int) -> int:
        """Append what the server has behind the first ``done`` bytes; the size then."""
        headers = {"Range": f"bytes={done}-"} if done else {}
        try:
            with opened(self._file.url, headers, self._token) as response:
                if done and not self._continues(response, done):
                    self._begin_anew(part)
                    done = 0
                if self._size is None and response.length is not None:
                    self._size = done + response.length
                return self._append(part, response, done)
        except Refused as error:
            if done and error.answered == 416:  # the file is shorter now
                self._begin_anew(part)
                raise BrokeOff(str(error)) from None
            raise refusal(error) from None

    def _continues(self, response: HTTPResponse, done: int) -> bool:
        found = _RANGE.match(response.headers.get("Content-Range", ""))
        return response.status == 206 and found is not None and int(found[1]) == done

    def _append(self, part: BinaryIO, response: HTTPResponse, done: int) -> int:
        while piece := response.read(_PIECE):
            done += len(piece)
            if self._size is not None and done > self._size:
                self._begin_anew(part)
                raise PullFailed(f"{self._file.url} sends more than its {self._size} bytes: it is another file now")
            self._write(part, piece)
            self._digest.update(piece)
            self._progress(done)
        return done

    def _write(self, part: BinaryIO, piece: bytes) -> None:
        if self._size is None and shutil.disk_usage(self._path.parent).free < _SPARE:
            raise PullFailed(f"{self._path} fills the disk: make room, or set pull.folder")
        try:
            part.write(piece)
            part.flush()
        except OSError as error:
            raise PullFailed(f"{self._path} cannot be written: {error.strerror}") from None

    def _check(self) -> None:
        if self._file.sha256 and self._digest.hexdigest() != self._file.sha256:
            _part(self._path).unlink()
            raise PullFailed(
                f"{self._path.name} is damaged: its checksum is {self._digest.hexdigest()}, expected "
                f"{self._file.sha256}. It was deleted: pull it again"
            )


def refusal(error: Refused, name: str = "", remedy: str = "") -> PullFailed:
    """What a refusal means for people."""
    what = name or str(error)
    if error.answered in (401, 403):
        return PullFailed(f"{what} may not be downloaded ({error.answered}): {remedy or 'it needs a token'}")
    if error.answered == 404:
        return PullFailed(f"{what} does not exist ({error})" if name else f"{what}: it does not exist")
    return PullFailed(f"{what} cannot be downloaded: {error}")


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
