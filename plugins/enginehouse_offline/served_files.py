"""The files of models that can be served without a configuration, and the engines for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from enginehouse import ConfigError, Launcher
from enginehouse.backends import ModelSettings
from enginehouse.config.schema import PluginSettings
from enginehouse.drivers import FoundModel, LaunchSpec, SupportsLaunch, support_of
from enginehouse.engines.launch_line import launch_line
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.settings import did_you_mean

_SHARE_OF_MEMORY = 0.8
"""Of main memory, for the engines; the rest is the system's."""


class InstalledEngines:
    """``drivers``: by type; by default all that are installed."""

    def __init__(self, drivers: Mapping[str, SupportsLaunch] | None = None) -> None:
        registry = load_plugins(PluginSettings()).registry
        self._launcher: Launcher = registry.create("launcher", "local")
        if drivers is None:
            drivers = {type: support_of(registry.create("driver", type)).launch for type in registry.types("driver")}
        self.drivers = drivers

    def missing(self, type: str, model: str, path: str) -> str:
        """The program that the launch of ``model`` by the driver ``type`` lacks; empty if none."""
        settings = ModelSettings(driver=type, path=path)
        line = launch_line(model, settings, self.drivers[type], 0, os.environ)
        return asyncio.run(self._launcher.why_not(line, ()))

    def memory(self) -> int:
        """The bytes that engines may take together: those of the GPUs, else most of main memory."""
        gpus = sum(gpu.total for gpu in self._launcher.gpus())
        return gpus or int(psutil.virtual_memory().total * _SHARE_OF_MEMORY)


_SNAPSHOTS = "snapshots"


def model_places(path: Path) -> Iterator[Path]:
    """``path``, and if it is a folder, every folder below it that may hold models, outer ones first.

    Leaves out hidden folders, and those whose contents another folder names: the blobs of the Hugging Face cache and of
    Ollama's store.
    """
    if path.is_file():
        yield path
        return
    for folder, inner, _ in os.walk(path):
        here = Path(folder)
        inner[:] = sorted(name for name in inner if _may_hold_models(here / name, inner))
        yield here


def _may_hold_models(folder: Path, siblings: list[str]) -> bool:
    if folder.name.startswith("."):
        return False
    if folder.name in ("blobs", "manifests", "refs"):
        return not {"blobs", "manifests"} <= set(siblings) and _SNAPSHOTS not in siblings
    return is_current(folder)


def is_current(path: Path) -> bool:
    """Whether ``path`` is in no snapshot of the Hugging Face cache, or in the newest one of its model."""
    for folder in (path, *path.parents):
        if folder.parent.name == _SNAPSHOTS and folder.parent.parent.name.startswith("models--"):
            return folder.name == _newest(folder.parent)
    return True


def _newest(snapshots: Path) -> str:
    """The revision that the branch ``main`` has; else the one that came last."""
    try:
        named = (snapshots.parent / "refs/main").read_text().strip()
    except OSError:
        named = ""
    if (snapshots / named).is_dir() and named:
        return named
    return max(snapshots.iterdir(), key=lambda folder: folder.stat().st_mtime).name


class ServedFiles(NamedTuple):
    """``models``: the tables ``[models.NAME]``. ``skipped``: what else was found, and why it is not served.

    ``problem``: why no engine can serve any of the models; empty if one can.
    """

    models: dict[str, dict[str, Any]]
    skipped: Sequence[str]
    problem: str = ""

    def document(self, memory: int | None) -> dict[str, Any]:
        """The configuration that serves the models, as TOML has it: as many at once as fit into ``memory`` bytes."""
        if memory is None:
            return {"models": self.models}
        room = {"hosts": {"local": {"memory": memory}}, "scheduling": {"swapper": "memory"}}
        return {**room, "models": self.models}


def served_files(paths: Sequence[Path], engines: InstalledEngines, only: Sequence[str] = ()) -> ServedFiles:
    """The models in the files and folders ``paths``; with ``only``, those of these names.

    A model that several engines can serve gets the first one whose program is there. Raises ``ConfigError`` for a path
    without any model, files of which none can be read, two files of one name, and a name that is not there.
    """
    models: dict[str, dict[str, Any]] = {}
    skipped: list[str] = []
    missing: dict[str, str] = {}
    for path in paths:
        found = _found(path, engines, skipped)
        if not found and not skipped:
            remedy = "give GGUF files, folders of Hugging Face models, or folders of these"
            raise ConfigError(f"{path} has no model that an installed engine can serve", remedy=remedy)
        for type, model in found:
            known = models.get(model.name)
            if known is not None and known["path"] != model.path:
                problem = f"{known['path']} and {model.path} are both called '{model.name}'"
                if path.is_file():
                    raise ConfigError(problem, remedy="rename one of them")
                skipped.append(f"{problem}: the second is left out")
                continue
            if problem := _unreadable(engines.drivers[type], model):
                skipped.append(problem)
                continue
            if problem := engines.missing(type, model.name, model.path):
                missing[model.name] = problem + _remedy(engines.drivers[type])
            models[model.name] = _table(type, model)
    if not models:
        raise ConfigError("; ".join(skipped), remedy="download them again: Git LFS may have left only addresses")
    return _served(ServedFiles(models, skipped), missing, only)


def _served(found: ServedFiles, missing: Mapping[str, str], only: Sequence[str]) -> ServedFiles:
    """Those of ``only`` whose programs are not ``missing``."""
    for name in only:
        if name not in found.models:
            known = list(found.models)
            raise ConfigError(f"there is no model '{name}'", remedy=did_you_mean(name, known) or f"{', '.join(known)}")
    wanted = {name: table for name, table in found.models.items() if not only or name in only}
    if all(name in missing for name in wanted):
        problems = dict.fromkeys(missing[name] for name in wanted)
        problem = f"no engine for these models is installed: {'; '.join(problems)}"
        return ServedFiles(wanted, found.skipped, problem)
    absent = [f"{name} at {table['path']}: {missing[name]}" for name, table in wanted.items() if name in missing]
    served = {name: table for name, table in wanted.items() if name not in missing}
    return ServedFiles(served, [*found.skipped, *absent])


def _found(path: Path, engines: InstalledEngines, skipped: list[str]) -> list[tuple[str, FoundModel]]:
    """Every model at ``path`` with the driver that serves it best. ``skipped`` gets what cannot be read, and why."""
    best: dict[tuple[str, str], tuple[str, FoundModel]] = {}
    for place in model_places(path.absolute()):
        for type, driver in engines.drivers.items():
            for model in _models_at(place, type, driver, skipped):
                if not is_current(Path(model.path)):
                    continue
                key = (model.path, model.name)
                known = best.get(key)
                if known is None or (known[0] != type and _is_better(type, model, known, engines)):
                    best[key] = (type, model)
    return list(best.values())


def _models_at(place: Path, type: str, driver: SupportsLaunch, skipped: list[str]) -> Sequence[FoundModel]:
    try:
        return driver.find_models(place)
    except Exception as error:  # of any driver's: the rest of the folder is served
        skipped.append(f"the driver '{type}' cannot read {place}: {error or repr(error)}")
        return ()


def _is_better(type: str, model: FoundModel, than: tuple[str, FoundModel], engines: InstalledEngines) -> bool:
    other = engines.missing(than[0], than[1].name, than[1].path)
    return bool(other) and not engines.missing(type, model.name, model.path)


def _table(type: str, model: FoundModel) -> dict[str, Any]:
    table: dict[str, Any] = {"driver": type, "path": model.path}
    return {**table, "options": dict(model.options)} if model.options else table


def _unreadable(driver: SupportsLaunch, model: FoundModel) -> str:
    """Why the files of ``model`` cannot be read; empty if they can. The gateway reads them again when they change."""
    try:
        driver.inspect(LaunchSpec(model=model.name, path=model.path, port=0))
    except Exception as error:  # of any driver's
        return str(error) or repr(error)
    return ""


def _remedy(driver: SupportsLaunch) -> str:
    return f" ({driver.how_to_install})" if driver.how_to_install else ""
