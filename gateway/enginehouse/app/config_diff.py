"""Compares two configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from enginehouse.config.schema import Config
from enginehouse.config.section import Section
from enginehouse.config.shape import PARAMETERS, Path, dotted

T = TypeVar("T")

_NAMED: Collection[Path] = (("hosts",), ("backends",), ("models",), PARAMETERS)
"""Tables whose entries are compared one by one."""
_AT_ONCE: Collection[Path] = (
    ("server", "allowed_hosts"),
    ("server", "max_body"),
    ("server", "max_body_memory"),
    ("server", "max_engine_memory"),
    ("server", "hold_answers"),
    ("server", "drain_timeout"),
    ("server", "drain_delay"),
    ("server", "watch"),
    ("server", "worker_timeout"),
    ("auth",),
    ("prices",),
    ("usage", "keep"),
    ("telemetry", "access_log"),
    ("telemetry", "log_format"),
    ("telemetry", "log_level"),
    ("routing",),
    ("checks",),
    ("timeouts",),
    ("streams",),
    ("scheduling",),
    ("hosts",),
    ("backends",),
    ("models",),
    ("zones",),
    ("discovery",),
    ("services",),
    ("batches",),
    PARAMETERS,
)
"""Keys that a running gateway can change; all others need a restart."""
_SCHEDULER: Path = ("scheduling", "scheduler")
"""The exception below ``scheduling``: it needs a restart."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Names of added, removed and changed entries of a table."""

    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []


class ModelChanges(Changes, frozen=True, kw_only=True):
    """``relaunched``: changed models whose running engines are stopped, because their launch differs."""

    relaunched: list[str] = []


class ConfigDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a new configuration.

    ``settings``: other changed keys. ``next_launch``: changed keys that apply from the next launch of an engine.
    ``needs_restart``: changed keys that apply only after a restart of the gateway.
    """

    hosts: Changes = Changes()
    backends: Changes = Changes()
    models: ModelChanges = ModelChanges()
    settings: list[str] = []
    next_launch: list[str] = []
    needs_restart: list[str] = []

    def lines(self) -> Iterator[str]:
        """The changes as people read them, without ``needs_restart``; no lines if nothing changes."""
        for table in ("hosts", "backends", "models"):
            changes = getattr(self, table)
            for kind in changes.__struct_fields__:
                if names := getattr(changes, kind):
                    yield f"{table} {kind}: {', '.join(names)}"
        if self.settings:
            yield f"changed: {', '.join(self.settings)}"
        if self.next_launch:
            yield f"from the next launch on: {', '.join(self.next_launch)}"


def diff_configs(
    old: Config, new: Config, relaunched: Collection[str], fixed: Collection[str]
) -> tuple[ConfigDiff, Config]:
    """Compare ``old`` with ``new``. Return the differences, and the configuration in force after the change.

    That configuration is ``new`` with the old value of every key that needs a restart. ``relaunched``: models whose
    running engines are not launched as ``new`` says. ``fixed``: types of plugins whose parameters are read only at
    start.
    """
    paths = list(differences(old, new))
    restart = [path for path in paths if _needs_restart(path, old, new, fixed)]
    config = new
    for path in restart:
        config = keeping(config, old, path)
    at_once = [path for path in paths if path not in restart]
    touched = {path[:2] for path in at_once}
    diff = ConfigDiff(
        hosts=Changes(**_changes("hosts", old.hosts, config.hosts, touched)),
        backends=Changes(**_changes("backends", old.backends, config.backends, touched)),
        models=ModelChanges(
            **_changes("models", old.models, config.models, touched),
            relaunched=[name for name in config.models if name in relaunched],
        ),
        settings=[dotted(path) for path in at_once if len(path) == 1 or path[:1] not in _NAMED],
        next_launch=[dotted(path) for path in at_once if path[::2] == ("models", "stop_command")],
        needs_restart=[dotted(path) for path in restart],
    )
    return diff, config


def differences(old: Any, new: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of keys, and of entries of the tables ``_NAMED``, that differ. The order of a table counts."""
    if old is new:  # a change without a reload has most of the old objects
        return
    if isinstance(old, Section) and type(old) is type(new):
        for key in old.__struct_fields__:
            yield from differences(getattr(old, key), getattr(new, key), (*path, key))
    elif path in _NAMED:
        for name in dict.fromkeys([*old, *new]):
            if name in old and name in new:
                yield from differences(old[name], new[name], (*path, name))
            else:
                yield (*path, name)
        if path != PARAMETERS and [name for name in old if name in new] != [name for name in new if name in old]:
            yield path
    elif old != new or (isinstance(old, dict) and list(old) != list(new)):
        yield path


def keeping(new: T, old: T, path: Path) -> T:
    """``new`` with the value of ``old`` at ``path``, or without a value if ``old`` has none."""
    if not path:
        return old
    name, *rest = path
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        kept = {key: value for key, value in new.items() if key != name}
        if name in old:
            kept[name] = keeping(new.get(name, old[name]), old[name], tuple(rest))
        return kept  # type: ignore[return-value]
    value = keeping(getattr(new, str(name)), getattr(old, str(name)), tuple(rest))
    return msgspec.structs.replace(new, **{str(name): value})  # type: ignore[type-var]


def _needs_restart(path: Path, old: Config, new: Config, fixed: Collection[str]) -> bool:
    if path[:2] == PARAMETERS:
        return len(path) > 2 and path[2] in fixed
    if path[0] == "hosts":
        return path[2:] == ("launcher",)
    return path == _SCHEDULER or not any(path[: len(live)] == live for live in _AT_ONCE)


def _changes(
    table: str, old: Mapping[str, object], new: Mapping[str, object], touched: Collection[Path]
) -> dict[str, list[str]]:
    return {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and (table, name) in touched],
    }
