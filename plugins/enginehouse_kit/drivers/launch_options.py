"""Turns the options of an engine into arguments of its launch line."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from enginehouse.drivers import EngineOptions


def option_arguments(options: EngineOptions, *, switches: Collection[str] = ()) -> list[str]:
    """Return the arguments for ``options``, in the order of their fields: ``gpu_layers = 99`` is ``--gpu-layers 99``.

    ``None`` gives no argument, ``True`` the flag alone, ``False`` the flag with ``no-`` in front. ``switches`` have no
    flag with ``no-``: for them, ``False`` gives no argument. The items of a list follow the flag; a table becomes JSON.
    """
    arguments: list[str] = []
    for field in options.__struct_fields__:
        value, flag = getattr(options, field), field.replace("_", "-")
        if value is None:
            continue
        if value is True:
            arguments.append(f"--{flag}")
        elif value is False:
            arguments += [] if field in switches else [f"--no-{flag}"]
        elif isinstance(value, list):
            arguments += [f"--{flag}", *map(str, value)]
        else:
            arguments += [f"--{flag}", msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)]
    return arguments
