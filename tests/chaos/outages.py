"""What is broken for longer than one request: engines, the way to them, the gateway's descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.endpoint import Address
from tests.chaos.schedule import Action
from tests.chaos.virtual_time import OrderedSet, clock

if TYPE_CHECKING:
    from tests.chaos.world import World


class Outages:
    """Carries out the actions of a schedule that break something or repair it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._connect_faults: dict[str, str] = {}
        self._down = OrderedSet()
        self._descriptors_back_at = 0.0

    def act(self, action: Action) -> bool:
        """Carry ``action`` out; whether it is an outage or its end."""
        whom, how = action.whom, action.how
        if action.what == "health":
            for engine in self._world.engines.values():
                if engine.name == whom:
                    engine.health = how
        elif action.what == "meddle":
            self._world.router.meddle(whom, how)
        elif action.what == "connect":
            self._connect_faults[whom] = how
        elif action.what == "descriptors":
            self._descriptors_back_at = clock.now + float(how)
        elif action.what == "crash":
            self._crash(whom, how)
        else:
            return False
        return True

    def end(self) -> None:
        """Start the engines that have crashed. Other outages end with ``World.calm``."""
        for name in list(self._down):
            self._world.note("schedule", f"crash {name} up")
            self._crash(name, "up")

    def connect_fault(self, address: Address) -> str:
        """How a connection of the gateway to ``address`` fails now; empty if it does not."""
        if self._world.calm:
            return ""
        if clock.now < self._descriptors_back_at:
            return "emfile"
        host, port = address
        if host == "127.0.0.1":
            processes = self._world.processes.values()
            host = next((process.name for process in processes if process.place[1] == port), host)
        return self._connect_faults.get(host, "")

    def accepts_at(self) -> float:
        """When the gateway has a descriptor for an accepted connection."""
        return 0.0 if self._world.calm else self._descriptors_back_at

    def _crash(self, name: str, how: str) -> None:
        world = self._world
        if name in world.processes:
            if how == "down":
                world.processes[name].end(-11)
        elif name.startswith("e") and how == "down":
            self._down.add(name)
            world.network.unlisten((name, 8000))
            world.engines[name].crash()
        elif name in self._down:
            self._down.discard(name)
            world.network.listen(name, (name, 8000), world.engines[name].accept)
