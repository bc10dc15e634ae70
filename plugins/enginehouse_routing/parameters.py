"""Parameters of this plugin. They stand apart from compiled modules, whose classes lose their docstrings."""

from __future__ import annotations

from typing import Annotated

import msgspec


class RandomConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``seed`` makes the picks repeatable."""

    seed: int | None = None


class ErrorShareConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``most``: the largest share of bad answers with which an engine still gets requests; ``routing.error_share``."""

    most: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
