from __future__ import annotations

from enginehouse_otlp.process.core_sharing import CoreSharing


class Core:
    """A core that another process takes for ``busy`` seconds when it may."""

    def __init__(self, busy: float) -> None:
        self.busy = busy
        self.now = 0.0
        self.yields = 0

    def yield_core(self) -> None:
        self.yields += 1
        self.now += self.busy


def work(core: Core, sharing: CoreSharing, pieces: int) -> None:
    """Do ``pieces`` of 0.1 ms."""
    for _ in range(pieces):
        core.now += 0.0001
        sharing.yield_core()


def test_the_gateway_waits_for_no_more_than_one_piece_of_work() -> None:
    core = Core(busy=0.0001)
    work(core, CoreSharing(core.yield_core, lambda: core.now), 100)
    assert core.yields == 100


def test_on_a_full_core_the_exporter_works_for_some_time_after_each_yield() -> None:
    core = Core(busy=0.025)
    work(core, CoreSharing(core.yield_core, lambda: core.now), 100)
    assert core.yields == 5


def test_once_the_core_has_room_again_it_yields_as_before() -> None:
    core = Core(busy=0.025)
    sharing = CoreSharing(core.yield_core, lambda: core.now)
    work(core, sharing, 1)
    core.busy = 0.0
    work(core, sharing, 100)
    assert core.yields > 75
