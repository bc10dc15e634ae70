"""The ``local`` launcher: engines as process groups on the gateway's own machine."""

from __future__ import annotations

from enginehouse import Launcher, Register, hookimpl
from enginehouse_local.launcher import LocalLauncher

__all__ = ["LocalLauncher"]


@hookimpl
def register_launchers(register: Register[Launcher]) -> None:
    register("local", LocalLauncher)
