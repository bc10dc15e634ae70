"""What a whole configuration says about the launch of every engine."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse.config.schema import Config
from enginehouse.config.secret_variables import secret_variables


class LaunchRules(NamedTuple):
    """``secrets``: the environment variables that hold secrets. ``migrators``: those that may move requests."""

    secrets: frozenset[str] = frozenset()
    migrators: tuple[str, ...] = ()


NO_RULES = LaunchRules()


def launch_rules(config: Config) -> LaunchRules:
    """The rules of a configuration."""
    rescheduling = config.rescheduling
    return LaunchRules(secret_variables(config), tuple(rescheduling.migrators) if rescheduling.enabled else ())
