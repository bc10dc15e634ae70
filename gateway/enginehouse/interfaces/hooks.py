"""What a plugin needs to register its types, and what a kind of types is.

A hook is a function of the plugin with the mark ``hookimpl``. The gateway calls each hook once, at start, with a
callable: ``register(type, factory)``. ``type`` is the name that configuration uses, ``factory`` is the plugin's class.
The gateway calls a class that declares ``Config``, a ``msgspec.Struct`` of its parameters, with an instance of it, and
a class without ``Config`` without arguments. No hook runs during a request. ``plugin_manager.kinds`` has all hooks.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import pluggy

hookimpl = pluggy.HookimplMarker("enginehouse")
"""Decorator: the function implements the hook of the same name."""

T_contra = TypeVar("T_contra", contravariant=True)


class Register(typing.Protocol[T_contra]):
    """The callable that a hook receives."""

    def __call__(self, type: str, factory: Callable[..., T_contra]) -> None:
        """Register ``factory`` under the name ``type``."""


class Kind(NamedTuple):
    """One extension point: the word for its objects, its hook, their interface, and which of them are used.

    Hooks, the tables ``[plugins.KIND.TYPE]``, templates, checks and the reference follow from it.

    - ``interface`` is ``None`` where the factory returns an object of another library (Starlette routes, a click
      command).
    - ``hook`` is empty if entry points have the types, so that a list of them imports no plugin.
    - ``used``: the documentation of the hook, which begins with its first word after "Register".
    - ``stays``: instances live as long as the gateway; a reload does not replace them.
    - ``acts``: the conformance check starts processes, reaches other machines, or lets an observer write.
    """

    name: str
    hook: str
    interface: type | None
    used: str
    stays: bool = False
    acts: bool = False
