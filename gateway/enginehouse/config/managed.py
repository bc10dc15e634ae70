"""The backends and the driver of models that the gateway launches."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.config.schema import ModelSettings

ANY_ANSWER = "none"
"""The ``health_path`` of an engine without a health endpoint: any answer counts as healthy."""


def managed_backends(name: str, model: ModelSettings) -> Sequence[str]:
    """The names of a model's managed backends: its own name, then ``NAME-2``, ``NAME-3`` ..."""
    return [name, *(f"{name}-{n}" for n in range(2, model.replicas + 1))] if model.launches else []


def driver_of(model: ModelSettings) -> str:
    """The driver of a launched model: the configured one, else ``llamacpp`` for a GGUF file, else ``openai``."""
    return model.driver or ("llamacpp" if model.path.lower().endswith(".gguf") else "openai")
