"""The tables ``[zones]`` of the configuration."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from enginehouse.config.section import Section


class ZoneSettings(Section, frozen=True):
    """The requests that may only go to the backends of a zone. One match suffices; `*` and `?` match as in a shell."""

    models: Annotated[list[str], Meta(description="models that clients name, or that would serve the request")] = []
    keys: Annotated[list[str], Meta(description="names of keys")] = []
    headers: Annotated[
        list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+: *\S", description="`NAME: VALUE`")]],
        Meta(description="headers with their values, such as `x-zone: private`"),
    ] = []
