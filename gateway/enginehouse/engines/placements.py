"""The options by which a launcher places engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginehouse.config.parameters import decode_parameters
from enginehouse.config.schema import Config, ModelSettings
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import ConfigError
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.places import PlacementOptions


def placement_of(config: Config, model: ModelSettings, host: str) -> dict[str, Any]:
    """The options for ``model`` on ``host``: those of the host, and those of the model over them."""
    return {**config.host_settings(host).placement, **model.placement}


def decode_placement(
    launcher: Launcher, options: Mapping[str, Any], type: str = "", table: str = "placement"
) -> PlacementOptions:
    """The options, as ``launcher`` of this ``type`` declares them. Raises ``ConfigError``, naming ``table``."""
    owner = f"launcher '{type}'" if type else "launcher"
    decoded = decode_parameters(launcher.Options, options, table=table, owner=owner, word="option")
    return decoded or PlacementOptions()


def check_placement(config: Config, name: str, host: str, launcher: Launcher) -> None:
    """Check the options of the model ``name`` on ``host``. Raises ``ConfigError``."""
    model, type = config.models[name], config.host_settings(host).launcher
    table = ("models", name, "placement") if model.placement else ("hosts", host, "placement")
    decode_placement(launcher, placement_of(config, model, host), type, dotted(table))
    if launcher.places_gpus and isinstance(model.gpus, list):
        raise ConfigError(
            f"the launcher '{type}' of host '{host}' chooses the GPUs itself",
            key=dotted(("models", name, "gpus")),
            remedy="give their number",
        )
