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
    """A model's managed backends, each with its host: its own name, then ``NAME-2``, ``NAME-3`` ..."""
    if not model.launches:
        return {}
    places = [host for host in hosts_of_model(model) for _ in range(model.replicas)]
    return {f"{name}-{number}" if number > 1 else name: host for number, host in enumerate(places, 1)}


def driver_of(model: ModelSettings) -> str:
    """The driver of a launched model: the configured one, ``llamacpp`` for a GGUF file or a source, else ``openai``."""
    is_gguf = model.path.lower().endswith(".gguf") or bool(model.source)
    return model.driver or ("llamacpp" if is_gguf else "openai")
