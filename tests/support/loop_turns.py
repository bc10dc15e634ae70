"""How long each turn of a running gateway's event loop takes, from outside: a plugin with a page.

The figures are processor time of the loop's thread, so that they do not depend on what else the machine does.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from enginehouse_kit.process import fetch
from tests.support.plugins import Install

_SOURCE = '''
import asyncio
from time import perf_counter, thread_time

from starlette.responses import JSONResponse
from starlette.routing import Route

TICK_S = 0.002

class Turns:
    """The longest turn since the last question: it is what the loop does between two of its ticks."""

    def __init__(self):
        self.longest = self.wall = 0.0
        self.loop = None

    def tick(self):
        now, wall = thread_time(), perf_counter()
        self.longest, self.wall = max(self.longest, now - self.at), max(self.wall, wall - self.wall_at)
        self.at, self.wall_at = now, wall
        self.loop.call_later(TICK_S, self.tick)

    async def page(self, request):
        if self.loop is None:
            self.loop, self.at, self.wall_at = asyncio.get_running_loop(), thread_time(), perf_counter()
            self.tick()
        await asyncio.sleep(2 * TICK_S)  # so that what came before the question is counted
        longest, wall, self.longest, self.wall = self.longest, self.wall, 0.0, 0.0
        return JSONResponse({"processor": longest, "wall": wall})


@hookimpl
def register_routes(register):
    turns = Turns()
    register("turns", lambda: [Route("/turns", turns.page)])
'''


class Turn(NamedTuple):
    """The longest turn since the last question, in seconds of the thread's processor time and of the clock."""

    processor: float
    wall: float


def install_turns(install: Install) -> None:
    """Install the plugin, for gateways that have the folder of ``install`` on their ``PYTHONPATH``."""
    install("turns", _SOURCE)


def longest_turn(url: str) -> Turn:
    """Ask the gateway at ``url``. The first question begins the watch."""
    return Turn(**json.loads(fetch(f"{url}/turns", headers={})))
