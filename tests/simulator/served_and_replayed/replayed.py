"""Replays a scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.replay.gateway_replay import Setting
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualSettings
from tests.simulator.served_and_replayed.scenario import TPOT_S, Counts, Progress, Scenario, Seen, ways_of
from tests.support.followed_replay import FollowedReplay

_SHORTLY_S = 1e-6


class Replayed:
    """A replay of ``scenario``, whose configuration is in ``file``. ``progress``: after each step."""

    def __init__(self, scenario: Scenario, file: Path) -> None:
        self.progress: list[Progress] = []
        self._seen: Seen | None = None
        self._scenario = scenario
        setting = Setting(
            gateway=VirtualSettings(file=file),
            core=CoreSettings(ttft=0.0, tpot=TPOT_S),
            load_time=scenario.pace / 10,
            faults=tuple(scenario.faults),
        )
        self._replay = FollowedReplay(self._requests(), setting)

    def run(self) -> Seen:
        """Replay it. Returns what had happened at the end of the last step."""
        self._replay.run()
        while len(self.progress) < len(self._scenario.steps):  # it ends with the last answer
            self._note()
        assert self._seen is not None
        return self._seen

    def _requests(self) -> Iterator[TraceRequest]:
        """The trace, which the replay begins to read at the time 0 of the first step."""
        loop = asyncio.get_running_loop()
        for number in range(1, len(self._scenario.steps) + 1):
            loop.call_later(number * self._scenario.pace - _SHORTLY_S, self._note)
        yield from self._scenario.requests

    def _note(self) -> None:
        counts = self._replay.gateway.counts
        self._seen = Seen(
            ways_of(self._replay.gateway.decisions),
            dict(self._replay.codes),
            Counts(retries=counts["retried"], hedges=counts["hedged"], continuations=counts["continued"]),
        )
        begun = sum(client.seen.first_token >= 0 for client in self._replay.world.clients.values())
        self.progress.append(Progress.of(self._seen, begun))


def replayed(scenario: Scenario, file: Path) -> tuple[Seen, Sequence[Progress]]:
    """Replay ``scenario``. Returns what had happened at the end, and the progress after each step."""
    replay = Replayed(scenario, file)
    return replay.run(), replay.progress
