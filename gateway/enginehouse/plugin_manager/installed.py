"""Facts about installed plugins, found without importing them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, entry_points, version
from pathlib import Path
from typing import Any

GROUP = "enginehouse"
"""The entry-point group of plugins."""

_OWN = re.compile(r"enginehouse\s*(?![-\w.])", re.IGNORECASE)


def unmet_requirement(distribution: Distribution | None) -> str:
    """The problem if ``distribution`` requires another version of Enginehouse than the installed one, else ``""``."""
    for text in distribution.requires or () if distribution else ():
        if not _OWN.match(text):
            continue
        from packaging.requirements import Requirement  # 15 ms, and only for plugins of others

        requirement, installed = Requirement(text), version("enginehouse")
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(installed, prereleases=True):
            return (
                f"it requires enginehouse{requirement.specifier}, but {installed} is installed: "
                f"install a version of '{distribution.name if distribution else ''}' for {installed}"
            )
    return ""


def has_words(module: str, words: Iterable[str]) -> bool:
    """Whether the source of ``module`` contains all ``words``. ``True`` if the source cannot be read."""
    source = _source(module)
    return source is None or all(word.encode() in source for word in words)


def bundled_factory(hook: str, name: str, disabled: Collection[str]) -> Callable[[], Any] | None:
    """What a bundled plugin that is not ``disabled`` registers as ``name`` in ``hook``, made without parameters.

    Imports that plugin, but neither pluggy nor the interfaces: they take a sixth of the time of a short command.
    """
    for entry_point in entry_points(group=GROUP):
        if entry_point.name in disabled or not has_words(entry_point.module, (hook, f'"{name}"')):
            continue
        if entry_point.dist is not None and entry_point.dist.name == "enginehouse":
            offered: dict[str, Callable[[], Any]] = {}
            getattr(entry_point.load(), hook)(offered.__setitem__)
            if name in offered:
                return offered[name]
    return None


def registered_names(hook: str) -> Iterator[str]:
    """The names that installed plugins register in ``hook``, as far as their source has them as plain text."""
    for entry_point in entry_points(group=GROUP):
        source = _source(entry_point.module)
        if source is not None and hook.encode() in source:
            yield from _first_arguments(source, hook)


def _first_arguments(source: bytes, function: str) -> Iterator[str]:
    """The texts that ``function`` passes to other functions in the first place."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # of a broken plugin, which a list of names has no way to tell
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for call in ast.walk(node):
                match call:
                    case ast.Call(args=[ast.Constant(value=str(text)), *_]):
                        yield text


def _source(module: str) -> bytes | None:
    """The source of ``module``, found without importing it or the packages around it."""
    parts, path = module.split("."), None
    for length in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:length]), path)
        if spec is None:
            return None
        path, origin = spec.submodule_search_locations, spec.origin
    if origin is None or not origin.endswith(".py"):
        return None
    return Path(origin).read_bytes()
