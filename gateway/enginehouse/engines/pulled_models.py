"""The folder of downloaded models, what is known of each, and the downloads for engines that are to start."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

import msgspec

from enginehouse.aio.slow_work import run_slowly
from enginehouse.config.schema import PullSettings
from enginehouse.domain.errors import LoadCancelled, PullFailed
from enginehouse.domain.names import did_you_mean
from enginehouse.interfaces.model_sources import ModelSource, PulledFile, PullProgress

_NOTES = ".pulled"


class PulledNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the folder knows of one model: its name, as people gave it, and its files."""

    name: str
    path: str
    files: Sequence[PulledFile]

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(file.size for file in self.files)


class PulledModels:
    """The models that were downloaded into the folder of ``settings``, and the ``sources`` of more."""

    def __init__(self, settings: PullSettings, sources: Sequence[ModelSource] = ()) -> None:
        self.folder = settings.models_folder
        self._settings = settings
        self._sources = sources

    def find(self, name: str) -> Path | None:
        """The file or folder of the model ``name`` that an engine loads; ``None`` if it is not there, or not whole."""
        note = self._read(self._note_of(name))
        return self.path_of(note) if note is not None and self._is_whole(note) else None

    def path_of(self, note: PulledNote) -> Path:
        """The file or folder that an engine loads."""
        return self.folder / note.path

    def pull(self, name: str, progress: PullProgress) -> Path:
        """Download the model ``name`` unless it is there; its file or folder. It blocks. Raises ``PullFailed``."""
        if (found := self.find(name)) is not None:
            return found
        pulled = self._source_of(name).pull(name, self._settings, self.folder, progress)
        self._remember(PulledNote(name=name, path=pulled.path, files=pulled.files))
        return self.folder / pulled.path

    def check(self, name: str) -> None:
        """Raise ``PullFailed`` if no source knows names such as ``name``."""
        self._source_of(name)

    def all(self) -> Sequence[PulledNote]:
        """The models that are there, by name."""
        notes = self.folder / _NOTES
        read = (self._read(file) for file in (notes.glob("*.json") if notes.is_dir() else ()))
        return sorted((note for note in read if note is not None), key=lambda note: note.name)

    def get(self, name: str) -> PulledNote:
        """The model ``name``, which may be given without its host or its tag if one alone fits.

        Raises ``PullFailed`` otherwise.
        """
        notes = self.all()
        fitting = [note for note in notes if note.name == name] or [
            note for note in notes if name and name in (note.name.partition("/")[2], Path(note.path).stem)
        ]
        if len(fitting) != 1:
            known = [note.name for note in notes]
            hint = did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else "there is none yet")
            raise PullFailed(f"No downloaded model is called '{name}' in {self.folder} ({hint})")
        return fitting[0]

    def remove(self, note: PulledNote) -> None:
        """Delete the model's files, but for those that another model shares."""
        kept = {file.path for other in self.all() if other.name != note.name for file in other.files}
        for file in note.files:
            if file.path not in kept:
                (self.folder / file.path).unlink(missing_ok=True)
        self._note_of(note.name).unlink(missing_ok=True)
        for folder in _folders(note.files):
            with suppress(OSError):  # another model has files there
                (self.folder / folder).rmdir()

    def _source_of(self, name: str) -> ModelSource:
        for source in self._sources:
            if source.takes(name):
                return source
        raise PullFailed(
            f"'{name}' is not the name of a model to download: write hf.co/ORG/REPO or hf.co/ORG/REPO:QUANT, "
            "ollama.com/MODEL:TAG, or the address of a GGUF file"
        )

    def _is_whole(self, note: PulledNote) -> bool:
        return all(_size(self.folder / file.path) == file.size for file in note.files)

    def _note_of(self, name: str) -> Path:
        return self.folder / _NOTES / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    def _read(self, file: Path) -> PulledNote | None:
        try:
            return msgspec.json.decode(file.read_bytes(), type=PulledNote)
        except (OSError, ValueError, RecursionError):
            return None

    def _remember(self, note: PulledNote) -> None:
        file = self._note_of(note.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".new").write_bytes(msgspec.json.format(msgspec.json.encode(note)))
        file.with_suffix(".new").replace(file)


def _size(file: Path) -> int | None:
    return file.stat().st_size if file.is_file() else None


def _folders(files: Iterable[PulledFile]) -> Iterator[Path]:
    """The folders of ``files``, inner ones first."""
    folders = {folder for file in files for folder in Path(file.path).parents if folder.name}
    yield from sorted(folders, key=lambda folder: -len(folder.parts))


class Downloads:
    """Downloads models in threads. Engines of the same model share a download."""

    def __init__(self, make_sources: Callable[[], Sequence[ModelSource]]) -> None:
        self._make_sources = make_sources
        self._running: dict[str, Download] = {}

    async def fetch(self, name: str, settings: PullSettings, tell: PullProgress) -> None:
        """Download the model ``name`` unless it is there; ``tell`` hears how far that is. Raises ``PullFailed``.

        The download ends when the last caller is cancelled. What is there then is kept.
        """
        models = PulledModels(settings, self._make_sources())
        if await run_slowly(models.find, name) is not None:
            return
        download = self._running.get(name)
        if download is None:
            download = self._running[name] = Download(models, name)
        download.listeners.append(tell)
        try:
            await asyncio.shield(download.task)
        finally:
            download.listeners.remove(tell)
            if not download.listeners:
                download.cancelled.set()
                self._running.pop(name, None)
            del download  # a failure refers to this frame, and its task to the failure


class Download:
    """The download of the model ``name`` in a thread of its own. ``task`` ends with it.

    ``listeners`` hear how far it is. Once ``cancelled`` is set, it ends when bytes arrive; what is there then is kept.
    """

    def __init__(self, models: PulledModels, name: str) -> None:
        self.listeners: list[PullProgress] = []
        self.cancelled = Event()
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.ensure_future(run_slowly(models.pull, name, self._note))
        self.task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _note(self, done: int, total: int | None) -> None:
        """Take the progress that the thread reports. Raises ``LoadCancelled`` there when no request waits any more."""
        if self.cancelled.is_set():
            raise LoadCancelled("Nobody waits for the download any more")
        self._loop.call_soon_threadsafe(self._tell, done, total)

    def _tell(self, done: int, total: int | None) -> None:
        for listener in self.listeners:
            listener(done, total)
