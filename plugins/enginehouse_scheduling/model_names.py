"""Names of models in the rules of a swapper."""

from __future__ import annotations

from enginehouse import ConfigError
from enginehouse.settings import did_you_mean
from enginehouse.tickets import HostFacts


def models_of(host: HostFacts) -> list[str]:
    """The models that rules may name. Rules are the same for all hosts, so models of other hosts count too."""
    return sorted({replica.model for replica in host.replicas.values()} | host.elsewhere)


def check_model(model: str, host: HostFacts, key: str) -> None:
    """Raise ``ConfigError`` at the configuration key ``key`` if ``model`` is not known."""
    known = models_of(host)
    if model not in known:
        remedy = did_you_mean(model, known) or "name a model of [models], or of a backend"
        raise ConfigError(f"unknown model '{model}'", key=key, remedy=remedy)
