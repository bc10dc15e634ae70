"""The parameters of the strategy ``random``."""

from __future__ import annotations

import msgspec


class RandomConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``seed`` makes the picks repeatable."""

    seed: int | None = None
