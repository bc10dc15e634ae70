"""The composition root: the only package that knows everyone.

::

    gateway     the whole house, and its life
    build       from the configuration to the parts of the house
    reload      the configuration read anew, whoever asks for that
    plan        what changes with another configuration
    changeover  everything that it needs, made first, then put in place in one step
    watch       whether a file was changed
"""

from __future__ import annotations

from enginehouse.app.build import build_fleet, build_router, build_swapper
from enginehouse.app.gateway import Gateway

__all__ = ["Gateway", "build_fleet", "build_router", "build_swapper"]
