"""What a model can do."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica can do. ``None`` means nobody declared or probed it; unknown is allowed.

    ``context_length`` is in tokens.
    """

    context_length: int | None = None
    vision: bool | None = None
    tools: bool | None = None
    json_mode: bool | None = None
    embeddings: bool | None = None

    def over(self, weaker: Capabilities) -> Capabilities:
        """These capabilities, with the gaps filled from ``weaker``."""
        return Capabilities(
            **{
                name: getattr(weaker, name) if (value := getattr(self, name)) is None else value
                for name in self.__struct_fields__
            }
        )


UNKNOWN = Capabilities()
