"""Observers and swaps."""

from __future__ import annotations

import os
import re
from pathlib import Path

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import ServeAlone, table
from tests.support.plugins import Install

SOURCE = """
    import os

    class Diary(Observer):
        def write(self, *facts):
            with open(os.environ["DIARY"], "a") as diary:
                print(*facts, file=diary)

        def swap_started(self, target, evict):
            self.write("swap", target, *evict)

        def swap_done(self, done):
            self.write("done", done.target, done.error)

        def replica_state(self, replica, state):
            self.write(replica, state.value)

    @hookimpl
    def register_observers(register):
        register("diary", Diary)
"""


def test_an_observer_gets_swaps_and_states(serve_alone: ServeAlone, install: Install, tmp_path: Path) -> None:
    install("diary", SOURCE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    gateway = serve_alone(table("a") + table("b"), PYTHONPATH=path, DIARY=str(tmp_path / "diary"))
    gateway.operate("/api/models/a/load")
    gateway.operate("/api/models/b/load")
    assert (tmp_path / "diary").read_text().splitlines() == [
        "swap a@a",
        "a@a starting",
        "a@a ready",
        "done a@a None",
        "swap b@b a@a",
        "a@a stopping",
        "a@a stopped",
        "b@b starting",
        "b@b ready",
        "done b@b None",
    ]


SLEEPER = """
    import time

    class Sleeper(Observer):
        def finished(self, record):
            time.sleep(1.5)

    @hookimpl
    def register_observers(register):
        register("sleeper", Sleeper)
"""


def test_an_observer_that_blocks_is_named_with_the_time_that_it_took(
    serve_alone: ServeAlone, install: Install, tmp_path: Path
) -> None:
    install("sleeper", SLEEPER)
    gateway = serve_alone(table("a"), PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert gateway.ask("a").status_code == 200
    told = re.compile(r"The plugin 'sleeper' \(.*\) blocked the event loop for [1-9]")
    gateway.until(lambda _: told.search(gateway.log) is not None)
    assert gateway.ask("a").status_code == 200


WEBHOOK = """
    import asyncio, os, time

    class Webhook(Observer):
        async def start(self):
            self.waiting = []
            await asyncio.Event().wait()

        def finished(self, record):
            began = record.time - (record.ended - record.arrived)
            self.waiting.append(f"{record.status} {abs(time.time() - began) < 60}")

        async def stop(self):
            await asyncio.sleep(0.01)
            with open(os.environ["DIARY"], "a") as file:
                file.write("\\n".join(self.waiting))

    @hookimpl
    def register_observers(register):
        register("webhook", Webhook)
"""


def test_an_observer_sends_what_waits_when_the_gateway_stops(install: Install, tmp_path: Path) -> None:
    install("webhook", WEBHOOK)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "DIARY": str(tmp_path / "sent")}
    with RunningGateway(table("a"), environment) as gateway:
        answer = plain_httpx.post(f"{gateway.url}/v1/chat/completions", json={"model": "a", "messages": []})
    assert answer.status_code == 200
    assert (tmp_path / "sent").read_text() == "200 True"
