"""The name rule: distribution ``enginehouse-foo``, module ``enginehouse_foo``, entry point ``foo``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from enginehouse.plugin_manager.registry import Origin


def distribution_name(entry_point: str) -> str:
    """The distribution that the plugin ``entry_point`` must come in, when it is not bundled."""
    return "enginehouse-" + re.sub(r"[-_.]+", "-", entry_point).lower()


def module_name(entry_point: str) -> str:
    """The module that the plugin ``entry_point`` must be in."""
    return distribution_name(entry_point).replace("-", "_")


def name_faults(origin: Origin) -> Iterator[str]:
    """How the names of a plugin break the rule; bundled plugins share the distribution ``enginehouse``."""
    distribution, module = distribution_name(origin.entry_point), module_name(origin.entry_point)
    if not origin.bundled and re.sub(r"[-_.]+", "-", origin.distribution).lower() != distribution:
        yield f"its distribution must be named '{distribution}'"
    if origin.module.partition(".")[0] != module:
        yield f"its module must be named '{module}', not '{origin.module}'"
