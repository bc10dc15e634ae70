"""``[usage]`` and ``[prices]``: what callers have used, and what it costs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from enginehouse.config.section import Duration, Section, about

Price = Annotated[float, Meta(ge=0)]


class UsageSettings(Section, frozen=True):
    """Where the gateway keeps what callers have used, and what operators have done."""

    store: Annotated[str, about("`sqlite`, `none` or a plugin's; by default `sqlite` if keys are set, else `none`")] = (
        ""
    )
    ask_streams: Annotated[
        bool,
        about(
            "ask engines for the usage of streams whose clients do not (`stream_options`); the clients do not see it"
        ),
    ] = True
    keep: Annotated[Duration, about("age at which it is dropped; 0 for never")] = 400 * 86400


class PriceSettings(Section, frozen=True):
    """The price of a million tokens of a model, in any currency."""

    input: Annotated[Price, about("of prompts")] = 0.0
    cached: Annotated[
        Price | None, about("of the part of prompts that was in an engine's cache; by default as `input`")
    ] = None
    output: Annotated[Price, about("of answers")] = 0.0

    def cost(self, tokens_in: float, tokens_cached: float, tokens_out: float) -> float:
        """The price of so many tokens; ``tokens_cached`` are some of ``tokens_in``."""
        cached = self.input if self.cached is None else self.cached
        return ((tokens_in - tokens_cached) * self.input + tokens_cached * cached + tokens_out * self.output) / 1e6
