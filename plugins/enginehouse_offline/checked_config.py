"""Builds the gateway of a configuration, starts nothing, and finds all errors at once."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, MutableMapping, Sequence
from copy import deepcopy
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from enginehouse import ConfigError, PluginError
from enginehouse.app import rehearse_start
from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.config.load_config import LoadedConfig, find_document, read_document
from enginehouse.config.schema import Config
from enginehouse.config.server import WorkerCount, worker_count
from enginehouse.domain.errors import ConfigErrors
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse_offline.advice import hints
from enginehouse_offline.render import changed, effective, effective_data

_MOST_ROUNDS: Final = 10
"""Each takes as long as a check without errors. The first finds all errors of the schema, the second those of rules."""
_ENTRIES: Final = frozenset({"backends", "models", "hosts", "discovery", "zones"})
"""The tables of what has a name of its own, which is dropped whole: it may not work without the key at fault."""
_PART: Final = re.compile(r'\.?(?:(?P<bare>[\w-]+)|(?P<quoted>"(?:[^"\\]|\\.)*"))|\[(?P<index>\d+)\]')

_Path = Sequence["str | int"]
_Checked = TypeVar("_Checked")


def check_all(
    check: Callable[[dict[str, Any]], _Checked], document: dict[str, Any], environ: MutableMapping[str, str]
) -> _Checked:
    """The result of ``check``, which may change the document that it gets, and reads ``environ``.

    Takes ``document`` and ``environ`` over. Raises the errors of ``document``, and then of what remains of it without
    what is at fault.
    """
    rest = _Rest(document, environ)
    errors: list[ConfigError] = []
    for _ in range(_MOST_ROUNDS):
        try:
            checked = check(deepcopy(rest.document))
        except ConfigError as error:  # noqa: PERF203 - of each round
            found = error.errors if isinstance(error, ConfigErrors) else (error,)
            known = {str(each) for each in errors}  # a default that no plugin has stays when its key is dropped
            errors += [each for each in found if rest.has(each) and str(each) not in known]
            if not rest.drop(found):
                break
        except PluginError as error:
            if not errors:
                raise
            errors.append(ConfigError(str(error)))
            break
        else:
            if not errors:
                return checked
            break
    if len(errors) == 1:
        raise errors.pop()  # not errors[0]: an error refers to this frame, and the list would refer to the error
    raise ConfigErrors(errors)


class _Rest:
    """What remains of a ``document`` and of the variables in ``environ``."""

    def __init__(self, document: dict[str, Any], environ: MutableMapping[str, str]) -> None:
        self.document = document
        self._environ = environ
        self._gone: set[str] = set()
        self._dropped: set[str] = set()

    def has(self, error: ConfigError) -> bool:
        """Whether ``error`` is one of the document's own: it is not there only because something was dropped."""
        if error.key in self._dropped and error.problem == "is missing":
            return False
        quoted = {*re.findall(r"'([^']*)'", error.problem), *re.findall(r'"([^"]*)"', error.problem)}
        return self._gone.isdisjoint(quoted) and self._gone.isdisjoint(map(str, _path(error.key)))

    def drop(self, errors: Sequence[ConfigError]) -> bool:
        """Drop what is at fault; whether something was."""
        dropped = [self._drop(each) for each in reversed(errors)]  # of a list, the last element first
        return any(dropped)

    def _drop(self, error: ConfigError) -> bool:
        if self._environ.pop(error.key, None) is not None:
            return True
        path = _path(error.key)
        if len(path) > 1 and path[0] in _ENTRIES and error.problem != "unknown key":
            path = path[:2]
            self._forget(path)
        self._dropped.add(error.key)
        return _removed(self.document, path)

    def _forget(self, path: _Path) -> None:
        """Note the names of an entry that is dropped: its own, and those of its models."""
        entry = self.document.get(str(path[0]), {}).get(path[1])
        models = entry.get("models") if isinstance(entry, dict) else None
        self._gone |= {str(path[1]), *(map(str, models) if isinstance(models, list | dict) else ())}


def _path(key: str) -> _Path:
    """The path of a key as ``dotted`` writes it."""
    return [
        int(found["index"]) if found["index"] else found["bare"] or json.loads(found["quoted"])
        for found in _PART.finditer(key)
    ]


def _removed(document: Any, path: _Path) -> bool:
    """Remove the value at ``path``, or the innermost table on the way to it; whether there was one."""
    if not path:
        return False
    first, *behind = path
    there = (
        first in document
        if isinstance(document, dict)
        else isinstance(document, list) and first in range(len(document))
    )
    if not there:
        return False
    if not (behind and isinstance(document[first], dict | list) and _removed(document[first], behind)):
        del document[first]
    return True


class CheckedConfig(NamedTuple):
    """``file``: ``None`` without one. ``warnings``: all of them. ``plugins``: how many are loaded.

    ``hints``: what is right if an engine has it: no warnings.
    """

    file: Path | None
    config: Config
    warnings: tuple[str, ...]
    plugins: int
    hints: Sequence[str]

    @property
    def written(self) -> dict[str, Any]:
        """The configuration as in a file, with masked secrets."""
        return effective_data(self.config)

    @property
    def toml(self) -> str:
        """``written``, as TOML."""
        return effective(self.config)

    @property
    def changed(self) -> dict[str, Any]:
        """What of ``written`` differs from the defaults."""
        return changed(self.written)

    @property
    def workers(self) -> WorkerCount:
        """How many processes would serve."""
        return worker_count(self.config.server)


def check_config(file: Path | None) -> CheckedConfig:
    """Build a gateway as ``serve`` does, and start nothing.

    Raises all errors that keep it from starting: ``ConfigError``, ``ConfigErrors`` or ``PluginError``.
    """
    environ = dict(os.environ)
    document, found = find_document(file, environ)
    return check_all(lambda data: _checked(read_document(data, found, environ)), document, environ)


def _checked(loaded: LoadedConfig) -> CheckedConfig:
    heard = BufferingHandler(sys.maxsize)  # a full one would drop what it has
    logging.getLogger().addHandler(heard)
    try:
        with loaded.naming_file():
            found = load_plugins(loaded.config.plugins)
            settled = rehearse_start(loaded.config, found.registry)
    finally:
        logging.getLogger().removeHandler(heard)
    warnings = (*loaded.warnings, *(record.getMessage() for record in heard.buffer))
    likely = hints(ConfiguredPlugins(lambda: settled, found.registry))
    return CheckedConfig(loaded.file, settled, warnings, len(found.plugins), likely)
