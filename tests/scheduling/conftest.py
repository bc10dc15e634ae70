from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from enginehouse import LoadFailed, Swapper, Ticket
from enginehouse.testing import FakeEffects
from enginehouse_scheduling.fifo import Fifo

Host = Callable[..., FakeEffects]


class ByRule(Swapper):
    """Evicts what ``rule`` says for a target, as far as it runs; ``None`` there: it can never be loaded."""

    def __init__(self, rule: Mapping[str, str | None]) -> None:
        self.rule = rule

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        evict = self.rule.get(target, "")
        if evict is None:
            raise LoadFailed(f"'{target}' is too large")
        return [replica for replica in running if replica in evict]

    def on_swap_start(self, target: str, running: Sequence[str]) -> None: ...


@pytest.fixture
def host() -> Host:
    """A host with the replicas a, b, c, d and a ``Fifo``; without limits, unless said otherwise.

    ``rule`` says what each target evicts; without it, everything else has to go.
    """

    def make(
        replicas: Sequence[object] = "abcd", *, rule: Mapping[str, str | None] | None = None, **settings: object
    ) -> FakeEffects:
        settings = {"max_loads": 0, "max_wait": 0.0, "queue_timeout": 0.0, **settings}
        if rule is not None:
            settings["swapper"] = ByRule(rule)
        return FakeEffects(Fifo(), replicas, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture
def waiting() -> Callable[[FakeEffects], list[Ticket]]:
    def who(host: FakeEffects) -> list[Ticket]:
        return [each.ticket for each in host.scheduler.waiting()]

    return who
