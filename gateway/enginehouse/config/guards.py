"""``guards``: what may refuse or change requests and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from enginehouse.config.section import Period, Section


class GuardSettings(Section, frozen=True, kw_only=True):
    """One guard. In place of the table, its type alone is enough."""

    type: Annotated[str, Meta(description="a registered guard")]
    timeout: Annotated[Period, Meta(description="time in which it must decide about a request or an answer")] = 5
    on_error: Annotated[
        Literal["refuse", "pass"],
        Meta(
            description="if it fails or takes too long: `refuse` gives the client an error, `pass` goes on without it"
        ),
    ] = "refuse"
    parameters: Annotated[dict[str, Any], Meta(description="parameters of the guard")] = {}
