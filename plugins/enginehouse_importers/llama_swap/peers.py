"""llama-swap's peers: servers that run elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from enginehouse_importers.kit.backends import read_url, secret
from enginehouse_importers.kit.table import Table
from enginehouse_importers.llama_swap.filters import read_filters
from enginehouse_importers.llama_swap.models import read_timeouts

VARIABLE = re.compile(r"\$\{env:(?P<name>\w+)(?P<default>)\}")
"""A ``$`` without ``{env:`` is part of a secret."""
_LAST_CHOICE = 100
"""A priority at which ``smart`` prefers any other backend."""


class Peers(NamedTuple):
    """The backends of peers, the settings of their models, and aliases of these."""

    backends: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    aliases: dict[str, str]


def read_peers(tables: Mapping[str, Table], local: Collection[str], taken: Collection[str]) -> Peers:
    """Read ``peers``. ``local`` are the names of models served otherwise, ``taken`` those of other backends."""
    peers = Peers({}, {}, {})
    served = {name: _named_models(table) for name, table in tables.items()}
    counts = Counter(model for models in served.values() for model in set(models))
    for name, table in tables.items():
        _read_peer(table, name, served[name], {*local, *(m for m in served[name] if counts[m] > 1)}, taken, peers)
    return peers


def _named_models(table: Table) -> list[str]:
    models = table.texts("models")
    for position, model in enumerate(models):
        if not model.strip():
            table.note("left out: the name is empty", "models", position)
    return [model for model in models if model.strip()]


def _read_peer(
    table: Table, name: str, models: list[str], shared: Collection[str], taken: Collection[str], peers: Peers
) -> None:
    url = read_url(table, "proxy")
    if not url or not models:
        table.note("left out: it needs the URL of a server and the models that it serves")
        return
    backend: dict[str, Any] = {"driver": "openai", "url": url, "models": models}
    if any(model in shared for model in models):
        backend["priority"] = _LAST_CHOICE
    if key := secret(table, "apiKey", variable=VARIABLE):
        backend["api_key"] = key
    peers.backends[_free(table, name, {*taken, *peers.backends})] = backend | read_timeouts(table.table("timeouts"))
    _read_filters(table, [model for model in models if model not in shared], peers)
    _name_models(table, name, models, shared, peers)
    table.leave_out({})


def _free(table: Table, name: str, taken: Iterable[str]) -> str:
    free = name
    while free in taken:
        free += "-peer"
    if free != name:
        table.note(f'the backend is named "{free}", because there is a model "{name}"')
    return free


def _read_filters(table: Table, models: Iterable[str], peers: Peers) -> None:
    filters, own = read_filters(table.table("filters")), list(models)
    if filters.always:
        peers.models.update({model: {"filters": filters.always} for model in own})
    for name, by_name in filters.by_name.items():
        if name not in own:
            table.note("left out: it is not a model of this peer alone", "filters", "setParamsByID", name)
        elif by_name:
            always = peers.models.get(name, {}).get("filters", {})
            peers.models[name] = {"filters": {**always, "set": {**always.get("set", {}), **by_name["set"]}}}


def _name_models(table: Table, name: str, models: Iterable[str], shared: Collection[str], peers: Peers) -> None:
    for position, model in enumerate(models):
        if model not in shared:
            peers.aliases[f"{name}/{model}"] = model
            continue
        table.note(
            f'"{model}" is served elsewhere too: requests go to any of these backends, to this one last and without '
            f'its filters; there is no alias "{name}/{model}"',
            "models",
            position,
        )
