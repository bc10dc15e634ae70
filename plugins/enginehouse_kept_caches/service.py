"""Keeps the prefix caches of engines that the gateway stops in files, while the engines do not run."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from enginehouse import RequestRecord, Service
from enginehouse.backends import CacheKeeper, LaunchedBackend
from enginehouse.drivers import EngineClient, KeepsCache
from enginehouse.runtime import replace_file, run_slowly, run_within
from enginehouse.services import Measured, MetricInfo, ServiceGateway

_log = logging.getLogger(__name__)
_RESTORE_S: Final = 30.0
_FEW: Final = 256
"""Tokens. What an engine should have of a shorter prefix is estimated too roughly to show anything."""
_KEPT, _LAUNCHED = "kept.json", "launched"
CACHES_KEPT = MetricInfo(
    "counter",
    "enginehouse_caches_kept",
    "Prefix caches of launched engines over a stop (`models.*.keep_cache`): `saved`, `late` if it took longer than "
    "`keep_cache_wait`, `failed`, then `restored`, `refused` by the engine, or `unconfirmed` by its answers.",
    ("model", "outcome"),
)


class CacheReports(NamedTuple):
    """What keepers report, and what tells of the use of their caches.

    ``note`` takes a model and what became of its cache. ``ended``: the last requests, the newest first. ``now``:
    the clock of their times.
    """

    note: Callable[[str, str], None]
    ended: Callable[[], Iterable[RequestRecord]]
    now: Callable[[], float]


class _CacheFiles(msgspec.Struct, frozen=True):
    """``engine``: what wrote the files. ``files``: by name, the tokens in each."""

    engine: str
    files: dict[str, int]


class KeptCache(CacheKeeper):
    """Saves the prefix cache of the engine of ``backend`` before it stops, and restores it after the next launch.

    Only an engine of the same program, launch line and model files gets it back. One that then reads again what it
    should have, although it says that it has it, gets no cache back any more.

    ``tokens``: how many are kept for the next launch. ``estimated``: the same, as routing estimates tokens of prompts.
    """

    def __init__(self, backend: LaunchedBackend, reports: CacheReports) -> None:
        self.tokens = self.estimated = 0
        self._folder = backend.folder
        self._backend = backend.name
        self._model = backend.model
        self._reports = reports
        self._engine: str | None = None
        self._useless = ""
        self._restored: _Restored | None = None

    async def prepare(self, launch: str, command: Sequence[str], files: Sequence[str]) -> None:
        self._engine = ""
        self._engine = await run_slowly(_prepared, self._folder, launch, command, files)

    async def restore(self, driver: KeepsCache, engine: EngineClient) -> None:
        self._restored = None
        if not self._engine:  # none was prepared
            return
        kept = await run_slowly(_kept, self._folder, self._engine) if self._engine != self._useless else None
        if kept is None:
            self.tokens = self.estimated = 0
            return
        try:
            restored = await run_within(_RESTORE_S, driver.restore_cache(engine, list(kept.files)))
        except Exception as error:
            _log.warning("%s could not restore its cache: %s", self._backend, error or type(error).__name__)
            await self._forget("refused")
        else:
            _log.info("%s has %d tokens in its cache again", self._backend, restored)
            self._restored = _Restored(self._reports.now(), max(kept.files.values()))
            self._reports.note(self._model, "restored")

    async def save(self, driver: KeepsCache, engine: EngineClient, within: float, most: int) -> None:
        if self._engine is None:  # an earlier gateway has launched it
            self._engine = await run_slowly(_launched, self._folder)
        answered = [each for each in self._reports.ended() if each.backend == self._backend]
        if self._restored is not None and _is_unconfirmed(self._restored, answered):
            _log.warning("%s did not have what it said that it had restored: no cache is kept for it", self._backend)
            self._useless = self._engine
            await self._forget("unconfirmed")
        self._restored = None
        if not self._engine or self._engine == self._useless:
            return
        await run_slowly(_forget, self._folder)  # first: files that are only half written must not look whole
        self.tokens = self.estimated = 0
        try:
            files = await run_within(within, driver.save_cache(engine))
            self.tokens = await run_slowly(_keep, self._folder, _CacheFiles(self._engine, dict(files)), most)
            self.estimated = _estimated(self.tokens, answered)
        except TimeoutError:
            self._reports.note(self._model, "late")
        except Exception as error:
            _log.warning("The cache of %s could not be saved: %s", self._backend, error or type(error).__name__)
            self._reports.note(self._model, "failed")
        else:
            if self.tokens:
                _log.info("%d tokens of %s's cache are kept", self.tokens, self._backend)
                self._reports.note(self._model, "saved")

    async def _forget(self, outcome: str) -> None:
        self.tokens = self.estimated = 0
        await run_slowly(_forget, self._folder)
        self._reports.note(self._model, outcome)


class _Restored(NamedTuple):
    """A restored cache: when, on the clock of requests, and the tokens of its largest file."""

    at: float
    largest: int


def _is_unconfirmed(restored: _Restored, answered: Iterable[RequestRecord]) -> bool:
    """Whether the first answer since then that tells shows that an engine has not what it should have in its cache.

    ``answered``: the last requests of that engine, the newest first. A prompt that fits into none of the files tells
    nothing: it may have been dropped before they were saved.
    """
    wrong = False
    for record in answered:
        if record.sent is None or record.sent < restored.at:
            break
        prefix, had = record.prefix, record.tokens_cached
        if prefix is None or had is None or prefix.cached <= _FEW:
            continue
        expected = (record.tokens_in or prefix.tokens) * prefix.cached / prefix.tokens
        if expected <= restored.largest:
            wrong = had < expected / 2
    return wrong


def _estimated(tokens: int, answered: Iterable[RequestRecord]) -> int:
    """What routing estimates for so many tokens of the engine that gave these answers."""
    read = [(each.tokens_in, each.prefix.tokens) for each in answered if each.tokens_in and each.prefix is not None]
    real, estimated = sum(each for each, _ in read), sum(each for _, each in read)
    return round(tokens * estimated / real) if real and estimated else tokens


# --- files, in a thread


def _prepared(folder: Path, launch: str, command: Sequence[str], files: Sequence[str]) -> str:
    engine = _identity(launch, command, files)
    replace_file(folder / _LAUNCHED, engine.encode())
    return engine


def _identity(launch: str, command: Sequence[str], files: Sequence[str]) -> str:
    """A hash that changes with the launch line, the program and the model's files, whose times and sizes tell."""
    program = shutil.which(command[0]) or command[0]
    facts = [launch]
    for file in (program, *files):
        try:
            found = os.stat(file)
        except OSError:
            continue
        facts.append(f"{os.path.realpath(file)} {found.st_size} {found.st_mtime_ns}")
    return sha256("\n".join(facts).encode()).hexdigest()


def _launched(folder: Path) -> str:
    try:
        return (folder / _LAUNCHED).read_text()
    except OSError:
        return ""


def _kept(folder: Path, engine: str) -> _CacheFiles | None:
    """What is kept for ``engine``. What is kept for another one is removed."""
    try:
        kept = msgspec.json.decode((folder / _KEPT).read_bytes(), type=_CacheFiles)
    except (OSError, ValueError):
        kept = None
    if kept is None or kept.engine != engine:
        _forget(folder)
        return None
    return kept


def _keep(folder: Path, kept: _CacheFiles, most: int) -> int:
    """Keep the first files that take at most ``most`` bytes, and remove the others; returns the tokens in them."""
    files: dict[str, int] = {}
    left = most
    for name, tokens in kept.files.items():
        size = (folder / name).stat().st_size
        if tokens > 0 and size <= left:
            left -= size
            files[name] = tokens
    if files:
        replace_file(folder / _KEPT, msgspec.json.encode(_CacheFiles(kept.engine, files)))
    _remove_others(folder, {_KEPT, _LAUNCHED, *files} if files else {_LAUNCHED})
    return sum(files.values())


def _forget(folder: Path) -> None:
    (folder / _KEPT).unlink(missing_ok=True)
    _remove_others(folder, {_LAUNCHED})


def _remove_others(folder: Path, names: Iterable[str]) -> None:
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name not in names and file.is_file():
            file.unlink(missing_ok=True)


class KeptCaches(Service):
    """Keeps the caches of launched engines whose drivers can have them written to files."""

    table = "models"
    metrics = (CACHES_KEPT,)

    def __init__(self) -> None:
        self._outcomes: Counter[tuple[str, str]] = Counter()

    def start(self, gateway: ServiceGateway) -> None:
        reports = CacheReports(self._note, gateway.requests.ended, gateway.clock.now)

        def keeper(backend: LaunchedBackend) -> KeptCache:
            return KeptCache(backend, reports)

        gateway.models.keep_with(keeper)

    def measure(self) -> Measured:
        return {CACHES_KEPT: self._outcomes.items()}

    def _note(self, model: str, outcome: str) -> None:
        self._outcomes[model, outcome] += 1
