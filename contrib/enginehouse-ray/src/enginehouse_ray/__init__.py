"""The launcher ``ray``: engines on the nodes of a Ray cluster."""

from __future__ import annotations

from enginehouse import Launcher, Register, hookimpl
from enginehouse_ray.launcher import RayConfig, RayLauncher, RayPlacement

__all__ = ["RayConfig", "RayLauncher", "RayPlacement"]


@hookimpl
def register_launchers(register: Register[Launcher]) -> None:
    register("ray", RayLauncher)
