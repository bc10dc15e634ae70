"""The parts of the configuration that concern the launch of every engine."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse.config.schema import Config
from enginehouse.config.secret_variables import secret_variables


class LaunchRules(NamedTuple):
    """``secrets``: the environment variables that hold secrets. ``migrators``: those that may move requests.

    ``adaptive_pd``: any engine may read prompts for others.
    """

    secrets: frozenset[str] = frozenset()
    migrators: tuple[str, ...] = ()
    adaptive_pd: bool = False


NO_RULES = LaunchRules()


def launch_rules(config: Config) -> LaunchRules:
    """The rules of a configuration."""
    secrets, rescheduling = secret_variables(config), config.rescheduling
    if not rescheduling.enabled:
        return LaunchRules(secrets)
    return LaunchRules(secrets, tuple(rescheduling.migrators), rescheduling.adaptive_pd)
