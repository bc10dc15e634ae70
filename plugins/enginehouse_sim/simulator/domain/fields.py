"""The fields of plain classes, for encoders and comparisons."""

from __future__ import annotations

from typing import Any


def fields_of(value: Any) -> dict[str, Any]:
    """The fields and properties of an object whose class has slots, by name. Compiled classes keep no list of slots."""
    return {
        name: getattr(value, name)
        for name, field in vars(type(value)).items()
        if hasattr(type(field), "__set__") and not name.startswith("_")
    }
