"""Several pages of metrics as one, in Prometheus's text format, with labels that say where each series is from.

https://prometheus.io/docs/instrumenting/exposition_formats/ has the format. Samples never become objects: those of a
page of 4 MiB would take six seconds and forty mebibytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

_THEIRS: Final = "exported_{}"
"""The name of an engine's own label that the gateway sets too, as Prometheus renames such labels."""
_COMMENT: Final = re.compile(r"#\s*(?P<kind>HELP|TYPE)\s+(?P<name>[a-zA-Z_:][\w:]*)(?:\s.*)?")
_SAMPLE: Final = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]*)(?:\s*\{(?P<labels>.*)\})?\s+(?P<value>[^\s{}#]+(?:\s+[^\s]+)?)"
)
"""Takes a time that grows as the line does: nothing else runs meanwhile, and engines may print anything."""
_LABEL: Final = re.compile(r'\s*(?P<name>[a-zA-Z_]\w*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ENDS: Final = ("", "_total", "_bucket", "_count", "_sum", "_created", "_info")


class _Family:
    """The lines of one metric."""

    def __init__(self) -> None:
        self.comments: dict[str, str] = {}
        self.samples: list[str] = []


def merged(pages: Iterable[tuple[Mapping[str, str], str]]) -> bytes:
    """One page of several, each with the labels that its series get. A page that cannot be read is left out."""
    families: dict[str, _Family] = {}
    for labels, text in pages:
        for name, found in _families(text, labels).items():
            family = families.setdefault(name, _Family())
            family.comments = found.comments | family.comments
            family.samples += found.samples
    lines = chain.from_iterable((*each.comments.values(), *each.samples) for each in families.values())
    return "".join(f"{line}\n" for line in lines).encode()


def _families(text: str, labels: Mapping[str, str]) -> dict[str, _Family]:
    """The metrics of a page by name; none if a line of it is neither a comment nor a sample."""
    families: dict[str, _Family] = {}
    current = ""
    for line in text.split("\n"):
        if not (line := line.strip()):
            continue
        if line.startswith("#"):
            if comment := _COMMENT.fullmatch(line):
                current = comment["name"]
                families.setdefault(current, _Family()).comments[comment["kind"]] = line
            continue
        sample = _SAMPLE.fullmatch(line)
        theirs = _labels(sample["labels"] or "", labels) if sample else None
        if sample is None or theirs is None:
            return {}
        name = sample["name"]
        family = current if name.startswith(current) and name[len(current) :] in _ENDS else name
        families.setdefault(family, _Family()).samples.append(f"{name}{{{theirs}}} {sample['value']}")
    return families


def _labels(text: str, ours: Mapping[str, str]) -> str | None:
    """``ours`` and the labels in ``text``; ``None`` if these cannot be read."""
    found = [_pair(name, _escaped(value)) for name, value in ours.items()]
    place = 0
    while place < len(text):
        label = _LABEL.match(text, place)
        if label is None:
            return None
        name = label["name"]
        found.append(_pair(_THEIRS.format(name) if name in ours else name, label["value"]))
        place = label.end()
    return ",".join(found)


def _pair(name: str, value: str) -> str:
    return f'{name}="{value}"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
