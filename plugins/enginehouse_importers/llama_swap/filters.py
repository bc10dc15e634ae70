"""llama-swap's filters: fields to remove from request bodies and to set in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, time
from typing import Any, NamedTuple

from enginehouse_importers.kit.table import Table

_INDEX_OR_PATTERN = re.compile(r"(^|\.)(-?\d+|)(\.|$)|[\\*?#|@:]")
_PATH = "left out: only names of fields are supported, joined by dots"
_VALUE = "left out: TOML has no null"
_MODEL = "left out: the model of a request cannot be removed or set"


class RequestFilters(NamedTuple):
    """The ``filters`` of a model: for every request, and further ones for requests that use a name in ``by_name``."""

    always: dict[str, Any]
    by_name: dict[str, dict[str, Any]]


def read_filters(table: Table) -> RequestFilters:
    """Read the ``filters`` of a model or a peer."""
    strip = _stripped(table)
    parameters = _parameters(table, "setParams")
    by_name = {name: _parameters(table.table("setParamsByID"), name) for name in table.mapping("setParamsByID")}
    table.leave_out({})
    return RequestFilters(_filters(strip, parameters), {name: _filters([], own) for name, own in by_name.items()})


def _stripped(table: Table) -> list[str]:
    legacy = table.text("strip_params")
    stripped = []
    for name in dict.fromkeys(name.strip() for name in table.text("stripParams", legacy).split(",")):
        if _INDEX_OR_PATTERN.search(name) and name:
            table.note(f'"{name}" is {_PATH}', "stripParams")
        elif name.partition(".")[0] not in ("", "model"):
            stripped.append(name)
    return stripped


def _parameters(table: Table, key: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name, value in table.mapping(key).items():
        if why := _unusable(name, value):
            table.note(why, key, name)
        else:
            parameters[name] = value
    return parameters


def _unusable(name: str, value: Any) -> str:
    if name.partition(".")[0] == "model":
        return _MODEL
    if _INDEX_OR_PATTERN.search(name):
        return _PATH
    return "" if fits_toml(value) else _VALUE


def fits_toml(value: Any) -> bool:
    """Whether TOML can hold ``value``: it has no null."""
    if isinstance(value, dict):
        return all(map(fits_toml, value.values()))
    if isinstance(value, list):
        return all(map(fits_toml, value))
    return isinstance(value, str | bool | int | float | date | time)


def _filters(strip: list[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (("strip", strip), ("set", dict(parameters))) if value}
