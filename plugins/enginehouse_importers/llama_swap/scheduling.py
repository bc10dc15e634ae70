"""Scheduling: groups, the matrix and priorities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from enginehouse_importers.kit.table import Table

_WORD = re.compile(r"(\+?)\s*([\w.-]+)")
_NOT_LAUNCHED = "left out: it is not a model that the gateway launches"


def read_scheduling(top: Table, launched: Mapping[str, str]) -> dict[str, Any]:
    """Convert ``routing``, or the older ``groups`` and ``matrix``, to ``[scheduling]``.

    ``launched`` maps the ids of the models that the gateway launches to their new names.
    """
    routing = top.table("routing")
    router, scheduler = routing.table("router"), routing.table("scheduler")
    settings = router.table("settings")
    place = settings if "router" in routing else top
    groups, matrix = _groups(place, launched), _matrix(place.table("matrix"), launched)
    swapper = router.text("use", "matrix" if place is top and matrix else "group")
    priorities = _priorities(scheduler, launched)
    for table in (settings, router, routing):
        table.leave_out({})
    if swapper == "matrix" and not matrix:
        place.note("left out: none of its sets could be converted, so the group swapper is used", "matrix")
    scheduling = {
        "swapper": "matrix" if swapper == "matrix" and matrix else "",
        "priorities": priorities,
        "groups": groups,
        "matrix": matrix,
    }
    return {key: value for key, value in scheduling.items() if value}


def swapping_group(model: str, scheduling: Mapping[str, Any]) -> str | None:
    """The group of ``model`` in the converted ``scheduling`` if it runs one member at a time.

    The empty name is the group of all models that no group lists. ``None`` where the ``matrix`` decides.
    """
    if scheduling.get("swapper") == "matrix":
        return None
    for name, group in scheduling.get("groups", {}).items():
        if model in group["members"]:
            return str(name) if group.get("swap", True) else None
    return ""


def _groups(place: Table, launched: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for name, table in place.tables("groups").items():
        members = []
        for position, member in enumerate(table.texts("members")):
            if member in launched:
                members.append(launched[member])
            else:
                table.note(f'"{member}" is {_NOT_LAUNCHED}', "members", position)
        usual = {"swap": True, "exclusive": True, "persistent": False}
        rules = {key: value for key, default in usual.items() if (value := table.flag(key, default)) != default}
        if members:
            groups[name] = {"members": members} | rules
        else:
            table.note("left out: it has no members")
        table.leave_out({})
    return groups


def _priorities(scheduler: Table, launched: Mapping[str, str]) -> dict[str, int]:
    if scheduler.text("use", "fifo") != "fifo":
        scheduler.note('left out: scheduling.scheduler = "fifo" is used', "use")
    settings = scheduler.table("settings")
    fifo = settings.table("fifo")
    table = fifo.table("priority")
    priorities = {}
    for id in fifo.mapping("priority"):
        if id in launched:
            priorities[launched[id]] = table.whole(id, 0, least=-(2**31))
    table.leave_out(dict.fromkeys(fifo.mapping("priority"), _NOT_LAUNCHED))
    for each in (fifo, settings, scheduler):
        each.leave_out({})
    return priorities


def _matrix(table: Table, launched: Mapping[str, str]) -> dict[str, Any]:
    """The matrix with the sets that name only launched models. Empty if no set remains."""
    expressions = {name: table.table("sets").text(name) for name in table.mapping("sets")}
    named = {word for text in expressions.values() for _, word in _WORD.findall(text)} | table.mapping(
        "evict_costs"
    ).keys()
    variables = {id: name for id, name in launched.items() if id != name and id in named}
    given = table.table("vars")
    for variable in table.mapping("vars"):
        if (id := given.text(variable)) in launched:
            variables[variable] = launched[id]
        else:
            variables.pop(variable, None)
            given.note(_NOT_LAUNCHED, variable)
    known = variables.keys() | launched.keys()
    sets = _usable(table.table("sets"), expressions, known)
    costs = _costs(table, known)
    table.leave_out({})
    matrix = {"vars": variables, "costs": costs, "sets": sets}
    return {key: value for key, value in matrix.items() if value} if sets else {}


def _usable(table: Table, expressions: Mapping[str, str], known: set[str]) -> dict[str, str]:
    """The sets that name only ``known`` models and, with ``+``, other usable sets."""
    sets = dict(expressions)
    while unusable := [name for name, text in sets.items() if not _is_usable(text, known, sets)]:
        for name in unusable:
            table.note(f"left out: it names something that the gateway does not launch: {sets.pop(name)}", name)
    return sets


def _is_usable(expression: str, known: set[str], sets: Mapping[str, str]) -> bool:
    return all(word in (sets if plus else known) for plus, word in _WORD.findall(expression))


def _costs(table: Table, known: set[str]) -> dict[str, int]:
    given = table.table("evict_costs")
    costs = {name: given.whole(name, 1, least=1) for name in table.mapping("evict_costs") if name in known}
    given.leave_out(dict.fromkeys(table.mapping("evict_costs"), _NOT_LAUNCHED))
    return costs
