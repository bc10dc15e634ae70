"""The capabilities of models."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of one replica, declared in the configuration or reported by the engine.

    ``None`` means unknown. A filter lets a replica with an unknown capability pass.
    """

    context_length: int | None = None
    """The longest prompt and answer together, in tokens."""
    vision: bool | None = None
    tools: bool | None = None
    json_mode: bool | None = None
    embeddings: bool | None = None
    parent: str | None = None
    """The model that this one is a LoRA adapter of."""

    def over(self, weaker: Capabilities) -> Capabilities:
        """These capabilities, with unknown ones taken from ``weaker``."""
        return Capabilities(
            **{
                name: getattr(weaker, name) if (value := getattr(self, name)) is None else value
                for name in self.__struct_fields__
            }
        )


UNKNOWN = Capabilities()
"""Capabilities of which none is known."""
