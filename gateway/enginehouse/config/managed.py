"""What comes with a model that is launched: its backends and their driver."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.config.schema import Model

ANY_ANSWER = "none"
"""The ``health_path`` of an engine that has no page for its health: it is healthy when it answers at all."""


def managed_backends(name: str, model: Model) -> Sequence[str]:
    """The names of the backends that are launched for a model: its own name, then ``NAME-2`` and so on."""
    return [name, *(f"{name}-{n}" for n in range(2, model.replicas + 1))] if model.launches else []


def driver_of(model: Model) -> str:
    """The driver of a model that is launched: the one it names, else llama.cpp's for a GGUF file, else OpenAI's."""
    return model.driver or ("llamacpp" if model.path.lower().endswith(".gguf") else "openai")
