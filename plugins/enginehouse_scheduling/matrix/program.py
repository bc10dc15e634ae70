"""Compiles sets for the solver: references resolved, models numbered, nested parts joined.

A model is a bit, and a combination of models is the ``int`` of their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import NamedTuple, Union

from enginehouse_scheduling.matrix.parser import Alternatives, Name, Reference, Tree
from enginehouse_scheduling.matrix.sets import Set
from enginehouse_scheduling.matrix.source import Source


class Both(NamedTuple):
    """The models of ``always`` together with one choice of every part. ``support``: the models of all choices."""

    support: int
    always: int
    parts: tuple[Either, ...]


class Either(NamedTuple):
    """One choice of one part. ``support``: the models of all choices."""

    support: int
    parts: tuple[Both, ...]


Node = Union[Both, Either]  # noqa: UP007 - each class refers to the other


def alone(model: int) -> Node:
    """The set of one model."""
    return Both(model, model, ())


def compile_sets(sets: Mapping[str, Set], bit: Callable[[Name, Source], int]) -> dict[str, Node]:
    """Every set as a node, in their order. ``bit`` returns the bit of the model that a name stands for."""
    nodes: dict[str, Node] = {}

    def compile_set(name: str) -> Node:
        if name not in nodes:
            source, tree = sets[name]
            nodes[name] = compile_tree(tree, source)
        return nodes[name]

    def compile_tree(tree: Tree, source: Source) -> Node:
        if isinstance(tree, Name):
            return alone(bit(tree, source))
        if isinstance(tree, Reference):
            return compile_set(tree.text)
        join = _either if isinstance(tree, Alternatives) else _both
        return join([compile_tree(part, source) for part in tree.parts])

    return {name: compile_set(name) for name in sets}


def _both(nodes: Iterable[Node]) -> Both:
    always, support = 0, 0
    parts: list[Either] = []
    for node in nodes:
        support |= node.support
        if isinstance(node, Both):
            always |= node.always
            parts += node.parts
        else:
            parts.append(node)
    return Both(support, always, tuple(parts))


def _either(nodes: Iterable[Node]) -> Either:
    parts: list[Both] = []
    for node in nodes:
        parts += [node] if isinstance(node, Both) else node.parts
    return Either(reduce(or_, (part.support for part in parts)), tuple(parts))
