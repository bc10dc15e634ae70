"""The name rule: distribution ``enginehouse-foo``, module ``enginehouse_foo``, entry point ``foo``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from enginehouse_kit.plugin_manager import PluginOrigin


def distribution_name(entry_point: str) -> str:
    """The required distribution name of a plugin that is not bundled."""
    return "enginehouse-" + re.sub(r"[-_.]+", "-", entry_point).lower()


def module_name(entry_point: str) -> str:
    """The required module name of a plugin."""
    return distribution_name(entry_point).replace("-", "_")


def name_faults(origin: PluginOrigin) -> Iterator[str]:
    """How a plugin breaks the name rule. Bundled plugins all come in the distribution ``enginehouse``."""
    distribution, module = distribution_name(origin.entry_point), module_name(origin.entry_point)
    if not origin.bundled and re.sub(r"[-_.]+", "-", origin.distribution).lower() != distribution:
        yield f"its distribution must be named '{distribution}'"
    if origin.module.partition(".")[0] != module:
        yield f"its module must be named '{module}', not '{origin.module}'"
