"""Service level objectives."""

from __future__ import annotations

import msgspec

from enginehouse import ConfigError, parse_duration


class Slo(msgspec.Struct, frozen=True):
    """The most seconds to the first token, between tokens on average, and to the last; ``None``: no limit."""

    ttft: float | None = None
    tpot: float | None = None
    latency: float | None = None

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read objectives such as ``ttft=2s,tpot=50ms``. Raises ``ConfigError``."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = part.strip().partition("=")
            if name not in cls.__struct_fields__:
                known = ", ".join(cls.__struct_fields__)
                raise ConfigError(f"has no figure {name!r}", key="--slo", remedy=f"it takes {known}: ttft=2s,tpot=50ms")
            try:
                limits[name] = parse_duration(value)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}", key="--slo") from None
        return cls(**limits)

    def is_met(self, ttft: float, tpot: float, latency: float) -> bool:
        """Whether a request with these figures is within all limits."""
        return (
            (self.ttft is None or ttft <= self.ttft)
            and (self.tpot is None or tpot <= self.tpot)
            and (self.latency is None or latency <= self.latency)
        )
