"""Makes a configuration from the models' files alone: for ``enginehouse run``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import ConfigError
from enginehouse.engines.launch_line import launch_line
from enginehouse.engines.missing_program import missing_program
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.interfaces.launch_spec import FoundModel


def models_document(paths: Sequence[Path], drivers: Mapping[str, SupportsLaunch]) -> dict[str, Any]:
    """The configuration that serves the files and folders ``paths``, as TOML has it.

    A model that several engines can serve gets the first one whose program is there. Raises ``ConfigError`` for a path
    without any model, and for two models of one name.
    """
    models: dict[str, dict[str, Any]] = {}
    for path in paths:
        found = _found(path, drivers)
        if not found:
            remedy = "give GGUF files, folders of Hugging Face models, or folders of these"
            raise ConfigError(f"{path} has no model that an installed engine can serve", remedy=remedy)
        for type, model in found:
            known = models.get(model.name)
            if known is not None and known["path"] != model.path:
                problem = f"{known['path']} and {model.path} are both called '{model.name}'"
                raise ConfigError(problem, remedy="rename one of them")
            models[model.name] = {"driver": type, "path": model.path}
            if model.options:
                models[model.name]["options"] = dict(model.options)
    return {"models": models}


def check_programs(document: Mapping[str, Any], drivers: Mapping[str, SupportsLaunch]) -> None:
    """Raise ``ConfigError`` if no program for any model is there, with how to get each that would do."""
    missing: dict[str, str] = {}
    for table in document["models"].values():
        for type, driver in drivers.items():
            for model in driver.find_models(Path(table["path"])):
                if not (problem := _missing(type, model, drivers)):
                    return
                missing[problem] = driver.how_to_install
    texts = [problem + (f" ({remedy})" if remedy else "") for problem, remedy in missing.items()]
    raise ConfigError(f"no engine for these models is installed: {'; '.join(texts)}")


def _found(path: Path, drivers: Mapping[str, SupportsLaunch]) -> list[tuple[str, FoundModel]]:
    """Every model at ``path`` with the driver that serves it best."""
    best: dict[str, tuple[str, FoundModel]] = {}
    for type, driver in drivers.items():
        for model in driver.find_models(path.absolute()):
            if model.path not in best or (_missing(*best[model.path], drivers) and not _missing(type, model, drivers)):
                best[model.path] = (type, model)
    return list(best.values())


def _missing(type: str, model: FoundModel, drivers: Mapping[str, SupportsLaunch]) -> str:
    """The program that the launch of ``model`` by the driver ``type`` lacks; empty if none."""
    settings = ModelSettings(driver=type, path=model.path)
    return missing_program(launch_line(model.name, settings, drivers[type], 0, os.environ).command)
