"""Reads the sets of a matrix. Checks syntax and references, but not the names of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from enginehouse.settings import did_you_mean
from enginehouse_scheduling.matrix.parser import Name, Reference, Tree, parse
from enginehouse_scheduling.matrix.source import Source


class Set(NamedTuple):
    """One set: its expression, as text and as a tree."""

    source: Source
    tree: Tree


def read_sets(expressions: Mapping[str, str], key: str) -> dict[str, Set]:
    """The sets of the table at the configuration key ``key``, in their order.

    Raises ``ConfigError`` for bad syntax, a reference to an unknown set, and circular references.
    """
    sources = {name: Source(f"{key}.{name}", text) for name, text in expressions.items()}
    sets = {name: Set(source, parse(source)) for name, source in sources.items()}
    done: set[str] = set()
    for name in sets:
        _follow(sets, name, [name], done)
    return sets


def _follow(sets: Mapping[str, Set], name: str, path: list[str], done: set[str]) -> None:
    """Follow the references of a set. ``path``: the sets that led to it."""
    if name in done:
        return
    source, tree = sets[name]
    for reference in _references(tree):
        target = reference.text
        if target not in sets:
            remedy = did_you_mean(target, list(sets)) or "'+' is for sets; a model goes without it"
            raise source.error(f"undefined set '{target}'", reference.span, remedy)
        if target in path:
            circle = " -> ".join([*path[path.index(target) :], target])
            raise source.error(f"circular reference {circle}", reference.span, "write one of them without the other")
        _follow(sets, target, [*path, target], done)
    done.add(name)


def _references(tree: Tree) -> Iterator[Reference]:
    if isinstance(tree, Reference):
        yield tree
    elif not isinstance(tree, Name):
        for part in tree.parts:
            yield from _references(part)
