"""Facts about installed plugins, found without importing them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, EntryPoint, entry_points, version
from pathlib import Path

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


def names_hook(module: str, hook: str) -> bool:
    """Whether the source of ``module`` contains the name ``hook``. ``True`` if the source cannot be read."""
    source = _source(module)
    return source is None or hook.encode() in source


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


def misplaced_entry_points(group: str) -> Iterator[EntryPoint]:
    """Entry points in groups whose names look like ``group``, such as ``enginehouse-plugins``."""
    for other in sorted(entry_points().groups):
        letters = re.sub(r"[^a-z]", "", other.lower()).removesuffix("s").removesuffix("plugin")
        if other != group and get_close_matches(letters, [group], cutoff=0.9):
            yield from entry_points(group=other)
