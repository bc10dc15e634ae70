from __future__ import annotations

from enginehouse.config.scheduling import SchedulingSettings
from enginehouse.config.schema import Config, HostSettings
from enginehouse.scheduling.scheduling_rules import host_limits
from enginehouse.tickets import SchedulingLimits


def test_the_limits_are_those_of_the_configuration() -> None:
    settings = SchedulingSettings(queue_timeout=1, max_queue=2, min_residency=3, max_wait=4)
    config = Config(scheduling=settings, hosts={"far": HostSettings(max_loads=5)})
    expected = SchedulingLimits(queue_timeout=1, max_queue=2, min_residency=3, max_wait=4, max_loads=5)
    assert host_limits(config, "far") == expected


def test_the_limits_have_the_defaults_of_the_configuration() -> None:
    assert host_limits(Config(), "local") == SchedulingLimits()
