"""What operators see of a discoverer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class FoundStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A backend in a discoverer's last list, by its name in this gateway."""

    name: str
    draining: bool
    labels: Mapping[str, str]


class DiscoveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One discoverer and its last list.

    - ``backends``: how many the list has; ``found`` describes each.
    - ``age_s``: seconds since the list was confirmed; ``None`` before the first one.
    - ``error``: why there is no newer list, or which of its backends cannot be used; ``None`` if all is well.
    """

    name: str
    type: str
    backends: int
    age_s: float | None
    error: str | None
    found: Sequence[FoundStatus]
