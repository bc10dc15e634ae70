"""Makes the waiting room."""

from __future__ import annotations

import asyncio
from functools import partial

from enginehouse.config.schema import Config
from enginehouse.fleet.fleet import Fleet
from enginehouse.scheduling.facts import scheduling_limits
from enginehouse.scheduling.waiting_room import WaitingRoom
from enginehouse.telemetry.observers import Observers, notify


def build_waiting_room(config: Config, fleet: Fleet, observers: Observers) -> WaitingRoom:
    """The room of the requests that wait for models of ``fleet``. ``observers`` hear when it changes."""
    room = WaitingRoom(
        lambda model: fleet.snapshot.candidates(model),
        lambda: asyncio.get_running_loop().time(),
        partial(notify, observers.callbacks("queue_changed")),
    )
    configure_waiting_room(room, config)
    return room


def configure_waiting_room(room: WaitingRoom, config: Config) -> None:
    """Put the limits and priorities of ``config`` in force."""
    room.configure(scheduling_limits(config), config.scheduling.priorities)
