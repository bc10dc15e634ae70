"""The names and aliases of converted models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class ModelNames:
    """Maps the id of every model in llama-swap to its new name.

    A model with ``useModelName`` takes that name, and its id becomes an alias. So the engine receives the name that it
    expects, because the gateway replaces an alias by the model's name. If the name is taken, the model keeps its id.
    """

    def __init__(self, models: Mapping[str, Mapping[str, Any]], elsewhere: Iterable[str]) -> None:
        wanted = {id: str(data.get("useModelName") or id) for id, data in models.items()}
        counts = Counter(wanted.values())
        others = {*elsewhere, *models}
        owners: dict[str, str] = {}
        self.repeated: list[tuple[str, str, str]] = []
        """The aliases that a model repeats, each with the model that keeps it and the one that does not get it."""
        for id, data in models.items():
            for alias in _aliases(data):
                if owners.setdefault(alias, id) != id:
                    self.repeated.append((alias, owners[alias], id))
        self._names = {
            id: name if counts[name] == 1 and name not in others and owners.get(name, id) == id else id
            for id, name in wanted.items()
        }
        self._aliases = {alias: self._names[id] for alias, id in owners.items()}
        self._aliases |= {id: name for id, name in self._names.items() if name != id}

    def __getitem__(self, id: str) -> str:
        return self._names[id]

    def aliases(self) -> dict[str, str]:
        """All aliases, except those that are the name of a model, and the empty one, which no request can ask for."""
        taken = set(self._names.values())
        return {alias: name for alias, name in self._aliases.items() if alias not in taken and alias.strip()}

    def find(self, name: str) -> str | None:
        """The new name of the model with the id or alias ``name``."""
        return self._names.get(name) or self._aliases.get(name)


def _aliases(data: Mapping[str, Any]) -> Iterator[str]:
    """The aliases of a model: texts, mappings with an ``id``, and the names in ``filters.setParamsByID``."""
    given = data.get("aliases")
    for alias in given if isinstance(given, list) else ():
        name = alias.get("id") if isinstance(alias, dict) else alias
        if isinstance(name, str | int | float):
            yield str(name)
    filters = data.get("filters")
    by_name = filters.get("setParamsByID") if isinstance(filters, dict) else None
    yield from by_name if isinstance(by_name, dict) else ()
