"""What a plugin needs to register its types.

A hook is a function of the plugin with the mark ``hookimpl``. The gateway calls each hook once, at start, with a
callable: ``register(type, factory)``. ``type`` is the name that configuration uses, ``factory`` is the plugin's class.
The gateway calls a class that declares ``Config``, a ``msgspec.Struct`` of its parameters, with an instance of it, and
a class without ``Config`` without arguments. No hook runs during a request. ``plugin_manager.kinds`` has all hooks.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import TypeVar

import pluggy

hookimpl = pluggy.HookimplMarker("enginehouse")
"""Decorator: the function implements the hook of the same name."""

T_contra = TypeVar("T_contra", contravariant=True)


class Register(typing.Protocol[T_contra]):
    """The callable that a hook receives."""

    def __call__(self, type: str, factory: Callable[..., T_contra]) -> None:
        """Register ``factory`` under the name ``type``."""
