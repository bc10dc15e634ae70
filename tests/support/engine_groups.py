"""The process groups of a gateway's engines, and the streams that they serve."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from enginehouse_kit.gateway import RunningGateway
from enginehouse_local.launcher import ENGINE

_RUN_S, _PAUSE_S = 0.001, 0.049
_LONGEST_PAUSE_S = 4 * _PAUSE_S


class EngineGroup:
    """All processes of one engine."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._holders = 0
        self._lock = threading.Lock()

    def stand_still(self) -> None:
        with self._lock:
            self._holders += 1
            os.killpg(self._leader, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run, unless somebody else holds it still too."""
        with self._lock:
            self._holders -= 1
            if not self._holders:
                os.killpg(self._leader, signal.SIGCONT)

    def kill(self) -> None:
        os.killpg(self._leader, signal.SIGKILL)

    def kill_leader(self) -> None:
        os.kill(self._leader, signal.SIGKILL)

    def is_gone(self) -> bool:
        """Whether no process is left."""
        try:
            os.killpg(self._leader, 0)
        except ProcessLookupError:
            return True
        return False


def engine_groups(gateway: RunningGateway) -> dict[str, EngineGroup]:
    """Each launched backend's engine, found by the name of its log, which is in its environment."""
    engines = {Path(each.environ().get(ENGINE, "")).name: each.pid for each in psutil.Process(gateway.pid).children()}
    names = [each["name"] for each in gateway.status()["backends"]]
    return {
        name: EngineGroup(pid)
        for name in names
        for log, pid in engines.items()
        if re.fullmatch(rf"{name}-[0-9a-f]{{8}}\.log", log)
    }


@contextmanager
def held_still(*groups: EngineGroup) -> Iterator[None]:
    """Stop engines in their tracks, so that the test's next steps come in the middle of their answers."""
    for group in groups:
        group.stand_still()
    try:
        yield
    finally:
        for group in groups:
            with suppress(ProcessLookupError):  # it was killed meanwhile
                group.go_on()


@contextmanager
def slow_motion(*groups: EngineGroup, attempt: int = 0) -> Iterator[None]:
    """Let engines run 1 ms of every 50, so that an answer takes long enough for the test's next steps.

    With each ``attempt`` they stand still for twice as long, up to 0.2 s: on a busy machine, the next steps take more
    time. A thread of its own counts the pauses, because the event loop is late there.
    """
    over = threading.Event()
    pause = min(_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)

    def toggle() -> None:
        with held_still(*groups):
            while not over.wait(pause):
                for group in groups:
                    group.go_on()
                over.wait(_RUN_S)
                for group in groups:
                    group.stand_still()

    toggling = threading.Thread(target=toggle)
    toggling.start()
    try:
        yield
    finally:
        over.set()
        toggling.join()


async def live(http: httpx.AsyncClient, gateway: RunningGateway) -> dict[str, Any]:
    """The live requests, by id."""
    return {row["id"]: row for row in (await http.get(f"{gateway.url}/api/requests")).json()["requests"]}


def backend(row: dict[str, Any]) -> str:
    """The backend that serves a live request."""
    return str(row["replica"]).partition("@")[2]
