"""Runs the schedule of a seed."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import warnings

from enginehouse.config.environment import STATE_DIR
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse_kit.virtual_loop import Deadlock
from tests.chaos import chance, stand_ins
from tests.chaos.chaos_loop import ChaosLoop
from tests.chaos.launcher import VirtualLauncher
from tests.chaos.plugins import plugins
from tests.chaos.schedule import Schedule, make_schedule
from tests.chaos.virtual_time import clock
from tests.chaos.world import Outcome, World

stand_ins.replace(lambda lines: World.current.taps.access(lines))

_REGISTRIES: list[Registry] = []


def registry() -> Registry:
    """The installed plugins, and those of the bench as one would register them."""
    if not _REGISTRIES:
        loaded = load_plugins(PluginSettings()).registry
        loaded.add(plugins(lambda: VirtualLauncher(World.current, World.current.rng), lambda: World.current))
        _REGISTRIES.append(loaded)
    return _REGISTRIES[0]


def run_seed(seed: int, workers: int = 1) -> Outcome:
    """Run the schedule of ``seed`` on a gateway with so many ``workers``."""
    shutil.rmtree(os.environ[STATE_DIR], ignore_errors=True)
    chance.rewind(seed)
    clock.now = 0.0
    stand_ins.forget_failures(lambda: clock.now)
    schedule = make_schedule(seed)
    world = first = _run(schedule, workers)
    if schedule.killed is not None:
        world = _run(
            make_schedule(f"{seed}/after", first.config_in_force())._replace(seed=f"{seed}/after"), workers, first
        )
    outcome = world.outcome()._replace(seed=seed)
    if world is not first:
        gc.collect()
        outcome.violations[:0] = first.violations
    for each in {first, world}:
        if each.schedule.killed is not None or each.forks is not None:
            _forget(each)
    del world, first, each, World.current
    logging.getLogger().handlers[:] = [_Afterwards(outcome)]
    gc.collect()  # finds tasks whose exceptions were never read
    return outcome


class _Afterwards(logging.Handler):
    """The log of a run that has ended. It does not keep its world alive, unlike the log of the gateway."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(logging.WARNING)
        self._violations = outcome.violations

    def emit(self, record: logging.LogRecord) -> None:
        self._violations.append(f"in the log, after the end: {record.getMessage()}")


def _forget(killed: World) -> None:
    """Let what a killed process left in memory end unseen: in its process, nothing of it would have run."""
    logging.disable()
    logging.getLogger().handlers.clear()  # the log knows the event loop, and so all that has run there
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it would stop its engines, but no loop is left to do so
            killed.__dict__.clear()
            gc.collect()
            gc.collect()  # what its generators have kept alive
    finally:
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)


def _run(schedule: Schedule, workers: int, killed: World | None = None) -> World:
    """Run one gateway. ``killed``: the one that ran before it."""
    loop = ChaosLoop(clock)
    world = World(schedule, loop, registry(), workers, killed)
    try:
        loop.run_until_complete(world.run())
    except Deadlock:
        world.violated("everything waits, and nothing will ever happen")
    if schedule.killed is not None:
        loop.abandon()
        world.gateway._state_file.close()  # type: ignore[union-attr]  # its process has ended, and so has its lock
    if world.forks is not None:
        world.forks.end()
    loop.close()
    return world
