"""Finds the best choice of an expression without expanding its combinations.

A model is a bit, and a combination of models is the ``int`` of their bits. Sets are compiled first: references are
resolved, models numbered and nested parts joined.

Only relevant models count: the target and the running ones. Parts of an ``&`` that share no relevant model are solved
one by one, because their worths add up. For parts that share some, the solver keeps the combinations that no other one
contains. Their number is bounded by the number of relevant models, not by the size of the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple, Union

from enginehouse_scheduling.matrix.expressions import Alternatives, Name, Reference, Set, Source, Tree


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


# --- the best choice

Worths = Mapping[int, int]
"""The worth of keeping a model, by its bit. Only relevant models have one."""


def best(node: Node, models: int, worths: Worths) -> tuple[int, int]:
    """The highest worth of a choice of ``node``, and the ``models`` that it keeps. The first one written wins ties."""
    if isinstance(node, Both):
        return _best_of_both(node, models, worths)
    highest = (0, 0)
    for part in node.parts:
        if part.support & models:
            found = _best_of_both(part, models, worths)
            if found[0] > highest[0]:
                highest = found
    return highest


def _best_of_both(node: Both, models: int, worths: Worths) -> tuple[int, int]:
    kept = node.always & models
    worth = _worth(kept, worths)
    rest = models & ~kept
    for group in _sharing(node.parts, rest):
        if len(group) == 1:
            more, chosen = best(group[0], rest, worths)
        else:
            more, chosen = max(((_worth(each, worths), each) for each in _choices(group, rest)), key=lambda it: it[0])
        worth += more
        kept |= chosen
    return worth, kept


def _worth(models: int, worths: Worths) -> int:
    total = 0
    while models:
        lowest = models & -models
        total += worths[lowest]
        models ^= lowest
    return total


def _sharing(parts: Sequence[Either], models: int) -> Iterator[list[Either]]:
    """The relevant parts, grouped: parts of one group share some of ``models``, directly or through other parts."""
    groups: list[tuple[int, list[int]]] = []
    for place, part in enumerate(parts):
        support = part.support & models
        if support:
            touching = [group for group in groups if group[0] & support]
            groups = [group for group in groups if not group[0] & support]
            places = sorted([place, *(each for group in touching for each in group[1])])
            groups.append((reduce(or_, (group[0] for group in touching), support), places))
    for _, places in groups:
        yield [parts[place] for place in places]


def _choices(parts: Sequence[Either], models: int) -> list[int]:
    """The subsets of ``models`` that choices of all parts keep, without subsets of other ones."""
    found = [0]
    for part in parts:
        alternatives = _alternatives(part, models)
        found = _most([one | other for one in found for other in alternatives])
    return found


def _alternatives(node: Either, models: int) -> list[int]:
    found = []
    for part in node.parts:
        if part.support & models:
            kept = part.always & models
            found += [kept | each for each in _choices(part.parts, models & ~kept)]
    return _most(found) or [0]


def _most(combinations: Iterable[int]) -> list[int]:
    """``combinations`` in their order, without duplicates and without subsets of other ones."""
    once = list(dict.fromkeys(combinations))
    largest: list[int] = []
    for each in sorted(once, key=int.bit_count, reverse=True):
        for other in largest:
            if each | other == other:
                break
        else:
            largest.append(each)
    keep = set(largest)
    return [each for each in once if each in keep]
