"""The backends and the driver of models that the gateway launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse.config.schema import ModelSettings

ANY_ANSWER = "none"
"""The ``health_path`` of an engine without a health endpoint: any answer counts as healthy."""


def hosts_of_model(model: ModelSettings) -> Sequence[str]:
    """The hosts that a model may run on."""
    return [model.host] if isinstance(model.host, str) else model.host


def managed_backends(name: str, model: ModelSettings) -> Mapping[str, str]:
    """A model's managed backends, each with its host: its own name, then ``NAME-2``, ``NAME-3`` ...

    Those of a range of replicas keep their names and hosts when their number changes.
    """
    return _backends(name, model, model.replicas if isinstance(model.replicas, int) else model.replicas.now)


def possible_backends(name: str, model: ModelSettings) -> Mapping[str, str]:
    """All managed backends that a model may have, at any load, each with its host."""
    return _backends(name, model, model.replicas if isinstance(model.replicas, int) else model.replicas.max)


def _backends(name: str, model: ModelSettings, replicas: int) -> Mapping[str, str]:
    if not model.launches:
        return {}
    hosts = hosts_of_model(model)
    if isinstance(model.replicas, int):
        places = [host for host in hosts for _ in range(replicas)]
    else:
        places = [hosts[number % len(hosts)] for number in range(replicas)]
    return {f"{name}-{number}" if number > 1 else name: host for number, host in enumerate(places, 1)}


def driver_of(model: ModelSettings) -> str:
    """The driver of a launched model: the configured one, ``llamacpp`` for a GGUF file or a source, else ``openai``."""
    is_gguf = model.path.lower().endswith(".gguf") or bool(model.source)
    return model.driver or ("llamacpp" if is_gguf else "openai")
