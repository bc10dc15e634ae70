"""Prints the picture of the code from its imports: packages as rooms, on the floors of the import contract.

Fails on an arrow up and on a circle. Imports for types count, and so do the kit and the other plugins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import msgspec

ROOT = Path(__file__).resolve().parent.parent
CORE = "enginehouse"
API = "public API"
"""The room of the public modules: all have the same floor, and none has code."""
PLUGINS = "plugins"
_BESIDE = {f"{CORE}.__main__": "cli"}
"""Modules of the core that are in no package and not public."""

Arrows = Mapping[str, Mapping[str, int]]
"""For each room, how many of its imports lead into each other room."""


def main() -> int:
    """Print the picture. The exit status is 1 if the picture has a fault."""
    linter = msgspec.toml.decode((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    floors = read_floors(linter["contracts"][0]["layers"])
    graph = grimp.build_graph(*linter["root_packages"])
    arrows = arrows_of((module, graph.find_modules_directly_imported_by(module)) for module in graph.modules)
    print("\n".join(lines(floors, arrows)))
    wrong = list(faults(floors, arrows))
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def read_floors(layers: Iterable[str]) -> dict[str, tuple[int, bool]]:
    """The floor of each room of the core, from a contract's ``layers``, and whether rooms beside it may import it."""
    found: dict[str, tuple[int, bool]] = {}
    for floor, layer in enumerate(reversed(list(layers))):
        for module in layer.replace(":", "|").split("|"):
            found[room_of(module.strip())] = floor, ":" in layer
    return found


def room_of(module: str) -> str:
    """The room of a module: its package in the core, or its plugin."""
    package, _, rest = module.partition(".")
    if package != CORE:
        return package
    if module in _BESIDE:
        return _BESIDE[module]
    name = rest.partition(".")[0]
    return name if (ROOT / "gateway" / CORE / name / "__init__.py").exists() and name else API


def arrows_of(imports: Iterable[tuple[str, Iterable[str]]]) -> Arrows:
    """The arrows between rooms, from the imports of each module."""
    found: dict[str, dict[str, int]] = {}
    for module, imported in imports:
        room = found.setdefault(room_of(module), {})
        for target in map(room_of, imported):
            if target != room_of(module):
                room[target] = room.get(target, 0) + 1
    return found


def lines(floors: Mapping[str, tuple[int, bool]], arrows: Arrows) -> Iterator[str]:
    """The picture: plugins above the core, and its rooms from the highest floor to the lowest."""
    top = max(floor for floor, _ in floors.values()) + 1
    rooms = sorted(arrows, key=lambda room: (-floors.get(room, (top, True))[0], room))
    for room in rooms:
        floor = str(floors[room][0]) if room in floors else PLUGINS
        targets = sorted(arrows[room].items(), key=lambda arrow: (-arrow[1], arrow[0]))
        yield f"{floor:>7}  {room:26} -> {', '.join(f'{target} {count}' for target, count in targets) or 'nothing'}"
    plugins = len(rooms) - len(floors)
    yield f"{len(floors)} rooms in the core, {plugins} plugins, {sum(map(len, arrows.values()))} arrows"


def faults(floors: Mapping[str, tuple[int, bool]], arrows: Arrows) -> Iterator[str]:
    """The arrows that lead up or to a neighbour, the rooms without a floor, and a circle."""
    for room, targets in arrows.items():
        if room not in floors and not room.startswith(f"{CORE}_"):
            yield f"'{room}' has no floor in the import contract"
        for target, count in targets.items():
            if room not in floors:
                continue
            elif target not in floors:
                yield f"arrow up: '{room}' imports the plugin '{target}' {count} times"
            elif floors[target][0] > floors[room][0]:
                yield f"arrow up: '{room}' imports '{target}' {count} times"
            elif floors[target][0] == floors[room][0] and not floors[room][1]:
                yield f"arrow to a neighbour: '{room}' imports '{target}' {count} times"
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        yield f"circle: {' -> '.join(reversed(error.args[1]))}"


if __name__ == "__main__":
    sys.exit(main())
