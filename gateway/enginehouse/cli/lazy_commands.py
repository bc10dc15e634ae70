"""Commands that are imported when they are used: the gateway's own parts take longer to import than most commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module

import click


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name. ``places`` has those that are not imported yet, as ``module:name``."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)
        self._imported: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._imported:
            module, _, attribute = self._places[name].partition(":")
            command = getattr(import_module(module), attribute)
            assert isinstance(command, click.Command)
            self._imported[name] = command
        return self._imported[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        self._imported.pop(name, None)
        self._places.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._imported})

    def __len__(self) -> int:
        return len({**self._places, **self._imported})

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._imported
