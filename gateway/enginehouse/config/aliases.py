"""What the names in ``[routing.aliases]`` stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Annotated, Final, Literal, NamedTuple

from enginehouse.config.section import Section, about

_MOST_REMEMBERED: Final = 1000
"""Names, most of which clients made up, whose pattern is remembered."""


class AliasTarget(Section, frozen=True):
    """A model that an alias stands for, or several."""

    to: Annotated[str | list[str], about("the model, or several in order")]
    weight: Annotated[float, about("share of the requests, relative to the other targets", gt=0)] = 1
    prefer: Annotated[
        Literal["order", "loaded", "free"],
        about("which of several is tried first: the first one, a loaded one, or a loaded one with a free slot"),
    ] = "order"


AliasSettings = str | list[str | AliasTarget] | AliasTarget


class Alias(NamedTuple):
    """The models that an alias stands for. ``weights``: one for each, or none."""

    targets: tuple[str, ...]
    weights: tuple[float, ...] = ()
    prefer: str = "order"


class Aliases:
    """All aliases. A name may be a pattern such as ``claude-*``; of several that match, the longest text wins.

    ``named``: those without patterns.
    """

    __slots__ = ("_matching", "_patterns", "named")

    def __init__(self, settings: Mapping[str, AliasSettings]) -> None:
        read = {name: read_alias(each) for name, each in settings.items()}
        self.named = {name: alias for name, alias in read.items() if "*" not in name}
        patterns = [(name, alias) for name, alias in read.items() if "*" in name]
        self._patterns = sorted(patterns, key=lambda each: -len(each[0].replace("*", "")))
        self._matching = lru_cache(_MOST_REMEMBERED)(partial(_first_match, self._patterns))

    def find(self, name: str) -> Alias | None:
        """What ``name`` stands for."""
        found = self.named.get(name)
        return found if found is not None or not self._patterns else self._matching(name)

    def targets(self, name: str) -> tuple[str, ...]:
        """The models that ``name`` stands for; none if it is no alias."""
        found = self.find(name)
        return found.targets if found is not None else ()


def _first_match(patterns: Sequence[tuple[str, Alias]], name: str) -> Alias | None:
    return next((alias for pattern, alias in patterns if fnmatchcase(name, pattern)), None)


def read_alias(settings: AliasSettings) -> Alias:
    """The targets of one alias, however they are written."""
    targets = settings if isinstance(settings, list) else [settings]
    pairs = [pair for target in targets for pair in _pairs(target)]
    names, weights = tuple(name for name, _ in pairs), tuple(weight for _, weight in pairs)
    written = [target for target in targets if isinstance(target, AliasTarget)]
    prefer = next((target.prefer for target in written if target.prefer != "order"), "order")
    return Alias(names, weights if len(written) > 1 else (), prefer)


def _pairs(target: str | AliasTarget) -> Iterator[tuple[str, float]]:
    """The models of one target, with their weights."""
    if isinstance(target, str):
        yield target, 1
    else:
        names = [target.to] if isinstance(target.to, str) else target.to
        yield from ((name, target.weight) for name in names)
