"""``[limits]``: where the limits of keys are counted."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from enginehouse.config.section import SecretText, Section


class LimitSettings(Section, frozen=True):
    """Where the gateway counts what keys have used of their limits."""

    store: Annotated[str, Meta(description="`memory`, or a plugin's that several gateways share, such as `redis`")] = (
        "memory"
    )
    url: Annotated[SecretText, Meta(description='address of a shared store; `"env:NAME"` or `"file:PATH"`')] = ""
