"""The map of the house, and the pages that lead into the code: what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.support.paths import DOCS, ROOT

CORE = ROOT / "gateway" / "enginehouse"
MAP = (DOCS / "explanation" / "the-house.md").read_text("utf-8")
WALKS = ("One request", "One move", "One load", "One configuration value", "One plugin")
MOST_ROOMS = 12

_PATH = re.compile(r"`([\w-]+/[\w./-]*|\w+\.py)`")
_ROOM = re.compile(r"^( {0,2})([\w.]+(?:/[\w.]+)*/?) +(\d+)? *\S", re.MULTILINE)


def section(title: str) -> str:
    return MAP.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def exists(path: str) -> bool:
    """Whether there is such a file or folder; a name by itself may be anywhere in the code."""
    name = path.removesuffix("/")
    return (ROOT / path).exists() or any(
        (folder / path).exists() or ("/" not in name and any(folder.rglob(name))) for folder in (CORE, ROOT / "plugins")
    )


def rooms() -> dict[str, int | None]:
    """Every path of the picture, with its floor."""
    picture = section("The packages").split("```")[1]
    found: dict[str, int | None] = {}
    parent = ""
    for indent, name, floor in _ROOM.findall(picture):
        if not indent:
            parent = name
        found[parent + name if indent else name] = int(floor) if floor else None
    return found


@pytest.mark.parametrize(
    "page",
    [*sorted((DOCS / "explanation").glob("*.md")), DOCS / "how-to/debug.md", ROOT / "CONTRIBUTING.md"],
    ids=lambda page: page.stem,
)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = _PATH.findall(page.read_text("utf-8"))
    assert [path for path in named if not exists(path)] == []


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_few_rooms(walk: str) -> None:
    named = set(_PATH.findall(section(walk)))
    assert 8 <= len(named) <= MOST_ROOMS, named


def test_every_path_of_the_picture_exists() -> None:
    assert [path for path in rooms() if not (ROOT / path).exists()] == []


def test_every_room_is_on_the_map() -> None:
    packages = {path.parent for folder in (CORE, ROOT / "plugins") for path in folder.glob("*/__init__.py")}
    shown = {(ROOT / path) for path in rooms()}
    assert packages - shown == set()


@pytest.mark.parametrize("room", sorted(path.parent.name for path in CORE.glob("*/__init__.py")))
def test_the_inner_rooms_are_named_beside_their_room(room: str) -> None:
    text = re.split(rf"^  {room}/ ", section("The packages"), flags=re.MULTILINE)[1]
    line = re.split(r"^ {0,2}\w", text, flags=re.MULTILINE)[0]
    inner = {path.name for path in (CORE / room).iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert {name for name in inner if f"{name}/" not in line} == set()


def test_the_floors_are_those_of_the_import_contract() -> None:
    contracts = msgspec.toml.decode((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [re.split(" [|:] ", layer) for layer in contracts[0]["layers"][1:]]  # the first: the API
    contracted = {
        name.removeprefix("enginehouse."): floor for floor, names in enumerate(reversed(layers)) for name in names
    }
    drawn = {Path(path).stem: floor for path, floor in rooms().items() if floor is not None}
    assert drawn == contracted
