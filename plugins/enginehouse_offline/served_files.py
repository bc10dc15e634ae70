"""Makes a configuration from the models' files alone: for ``enginehouse run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from enginehouse import ConfigError
from enginehouse.drivers import FoundModel, LaunchSpec, SupportsLaunch
from enginehouse.settings import did_you_mean
from enginehouse_offline.installed_engines import InstalledEngines
from enginehouse_offline.model_folders import is_current, model_places


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
