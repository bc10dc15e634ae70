"""Checks that the preloaded models of a host can run together."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.config.schema import Config
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import ConfigError, RequestError
from enginehouse.interfaces.swappers import HostFacts, Swapper


def check_preloads(config: Config, host: HostFacts, swapper: Swapper) -> None:
    """Raise ``ConfigError`` if preloading the models of ``host``, in their order, stops one that is preloaded too."""
    loaded: list[str] = []
    for replica, hosted in host.replicas.items():
        if config.models[hosted.model].preload:
            if problem := _problem(replica, loaded, host, swapper):
                raise ConfigError(
                    problem,
                    key=dotted(("models", hosted.model, "preload")),
                    remedy="preload only one of them, or let both run together by the rules of [scheduling]",
                )
            loaded.append(replica)


def _problem(replica: str, loaded: Sequence[str], host: HostFacts, swapper: Swapper) -> str:
    try:
        evicted = swapper.eviction_for(replica, loaded)
    except RequestError as error:
        return f"it cannot be loaded beside {_models(loaded, host)}: {error}" if loaded else ""
    return f"loading it stops {_models(evicted, host)}, preloaded too" if evicted else ""


def _models(replicas: Sequence[str], host: HostFacts) -> str:
    return ", ".join(f"'{model}'" for model in dict.fromkeys(host.replicas[each].model for each in replicas))
