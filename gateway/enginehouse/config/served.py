"""What backends and launched models say of themselves alike."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from enginehouse.config.section import Count, Positive, Section
from enginehouse.config.server import TimeoutSettings
from enginehouse.domain.replica import Role

Priority = Annotated[Count, Meta(description="lower is better")]
Weight = Annotated[
    float,
    Meta(
        ge=0.001,
        description="its share of the requests, relative to others, with `round_robin`, `random`, `least_pending`, "
        "`p2c` and `session`",
    ),
]
ServedRole = Annotated[Role, Meta(description="role when prefill and decode are disaggregated")]
Zone = Annotated[str, Meta(description="privacy zone that it is in; `[zones]` says which requests stay there")]
Tier = Annotated[Count, Meta(description="how good its models are; `routing.least_tier` asks for one")]
Concurrency = Annotated[
    Count, Meta(description="most concurrent requests, others wait; 0 for the limit that the engine reports, if any")
]
OwnTimeouts = Annotated[TimeoutSettings | None, Meta(description="time limits that replace the common `[timeouts]`")]


class CapabilitySettings(Section, frozen=True):
    """The capabilities of a model as this backend serves it. An unset capability is unknown, and refuses no request."""

    context_length: Annotated[Positive, Meta(description="longest prompt and answer together, in tokens")] | None = None
    vision: Annotated[bool | None, Meta(description="accepts images")] = None
    tools: Annotated[bool | None, Meta(description="accepts tools")] = None
    json_mode: Annotated[bool | None, Meta(description="can be restricted to JSON")] = None
    embeddings: Annotated[bool | None, Meta(description="computes embeddings")] = None
    parent: Annotated[str | None, Meta(description="the model that it is a LoRA adapter of")] = None
