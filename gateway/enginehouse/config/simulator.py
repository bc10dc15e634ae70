"""``[simulator]``: the engines of replays."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from enginehouse.config.section import Section


class SimulatorSettings(Section, frozen=True):
    """What simulated engines do in replays. The gateway itself does not read it."""

    policy: Annotated[
        str, Meta(description="`fcfs`, `priority` or a plugin's; by default, the flag `--policy` of the engine decides")
    ] = ""
