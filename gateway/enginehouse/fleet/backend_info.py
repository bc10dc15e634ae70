"""A backend as the configuration describes it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.replica import Health, Role


class BackendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a backend.

    - ``models``: the models that it serves and their capabilities; ``None`` to take the models that probes discover.
    - ``names``: those that its engine has for these models, where they differ.
    - ``health``: the verdict at the start. ``UNKNOWN`` leaves it to the first probe or request.
    - ``loads_models``: its models are replicas with states, stopped at first.
    """

    name: str
    url: str
    driver: str = "openai"
    priority: int = 0
    weight: float = 1.0
    role: Role = Role.NEUTRAL
    host: str = "local"
    zone: str = ""
    tier: int = 0
    models: Mapping[str, Capabilities] | None = None
    names: Mapping[str, str] = {}
    health: Health = Health.UNKNOWN
    loads_models: bool = False
