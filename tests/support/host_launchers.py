"""The means by which a host launches engines, around a launcher of a test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from enginehouse import Launcher
from enginehouse.engines.engine_cache import CacheFolders
from enginehouse.engines.gpus import Gpus
from enginehouse.engines.launches import Launches, Ports
from enginehouse.engines.state_file import EngineOwnership, StateFile


def launches(
    launcher: Launcher,
    state_file: StateFile | None = None,
    *,
    host: str = "local",
    ports: Ports | None = None,
    gpus: Gpus | None = None,
    ownership: EngineOwnership | None = None,
) -> Launches:
    """By default, it records nothing, and nobody else can have taken its ports."""
    return Launches(
        host,
        launcher,
        ports or Ports(25_000, 25_999),
        state_file or no_state_file(),
        gpus or Gpus(),
        ownership or EngineOwnership(),
        CacheFolders(Path("/nowhere")),
    )


def no_state_file() -> StateFile:
    """Takes records and drops them."""
    folder = Path("/nowhere")
    drop: Any = lambda name, record: None  # noqa: E731
    footprints = SimpleNamespace(known={}, put=drop)
    sleepers = SimpleNamespace(names=(), follow=lambda name, state, may_sleep: None)
    known = {"records": {}, "footprints": footprints, "sleepers": sleepers}
    return cast(StateFile, SimpleNamespace(folder=folder, logs=folder / "logs", put=drop, remove=drop, **known))
