"""What keeps streams, so that another engine can go on with them: the continuer that is installed."""

from __future__ import annotations

from collections.abc import Iterator

from enginehouse.app.plugin_instances import create_installed
from enginehouse.config.schema import Config
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import ConfigError, PluginError
from enginehouse.interfaces.continuers import Continuer
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.guarded_continuer import GuardedContinuer


def find_continuer(config: Config, registry: Registry) -> Continuer | None:
    """The continuer of the enabled plugins; ``None`` if there is none, and streams end with their engines.

    Raises ``ConfigError`` if the configuration needs one, and ``PluginError`` if there are several.
    """
    made = list(create_installed(config, registry, "continuer"))
    if len(made) > 1:
        names = " and ".join(str(plugin) for plugin, _ in made)
        raise PluginError(f"{names} both continue streams: disable the plugin of one of them")
    if not made:
        check_continuation(config, None)
        return None
    [(plugin, continuer)] = made
    return continuer if plugin.trusted else GuardedContinuer(plugin, continuer)


def check_continuation(config: Config, continuer: Continuer | None) -> None:
    """Raise ``ConfigError`` for what needs a continuer, if there is none."""
    if continuer is None and (key := next(_needs(config), "")):
        remedy = "enable the plugin 'continuation', or remove the key"
        raise ConfigError("no enabled plugin continues streams", key=key, remedy=remedy)


def _needs(config: Config) -> Iterator[str]:
    """The keys that ask for a continuer. ``routing.broken_stream`` is ``continue`` by default, so it does not."""
    if config.routing.gather:
        yield "routing.gather"
    if config.routing.broken_stream == "restart":
        yield "routing.broken_stream"
    for name, model in config.models.items():
        if model.broken_stream in ("continue", "restart"):
            yield dotted(("models", name, "broken_stream"))
    if config.rescheduling.enabled:
        yield "rescheduling.enabled"
