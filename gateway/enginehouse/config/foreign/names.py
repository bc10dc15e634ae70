"""What llama-swap's models are called here, and by which other names clients know them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class Names:
    """The new name of every model, by its id in llama-swap.

    A model whose engine wants to be told another name (``useModelName``) is called that, and its id is an alias of it:
    the gateway puts an alias's model into the body. That needs a name that nothing else has.
    """

    def __init__(self, models: Mapping[str, Mapping[str, Any]], elsewhere: Iterable[str]) -> None:
        wanted = {id: str(data.get("useModelName") or id) for id, data in models.items()}
        counts = Counter(wanted.values())
        others = {*elsewhere, *models}
        owners = {alias: id for id, data in models.items() for alias in _aliases(data)}
        self._names = {
            id: name if counts[name] == 1 and name not in others and owners.get(name, id) == id else id
            for id, name in wanted.items()
        }
        self._aliases = {alias: self._names[id] for alias, id in owners.items()}
        self._aliases |= {id: name for id, name in self._names.items() if name != id}

    def __getitem__(self, id: str) -> str:
        return self._names[id]

    def aliases(self) -> dict[str, str]:
        """Every other name of a model; one that is a model's own name too leads to that."""
        taken = set(self._names.values())
        return {alias: name for alias, name in self._aliases.items() if alias not in taken}

    def find(self, name: str) -> str | None:
        """The model that ``name``, an id or an alias, stands for."""
        return self._names.get(name) or self._aliases.get(name)


def _aliases(data: Mapping[str, Any]) -> Iterator[str]:
    """The aliases of a model, given as texts or as tables with an ``id``, and those that its filters make."""
    given = data.get("aliases")
    for alias in given if isinstance(given, list) else ():
        name = alias.get("id") if isinstance(alias, dict) else alias
        if isinstance(name, str | int | float):
            yield str(name)
    filters = data.get("filters")
    by_name = filters.get("setParamsByID") if isinstance(filters, dict) else None
    yield from by_name if isinstance(by_name, dict) else ()
