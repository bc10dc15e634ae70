"""The base class of the configuration's tables, and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Duration = Annotated[float, Meta(ge=0, extra={"unit": "duration"})]
"""Seconds as a number; text with a unit in the file (``"30s"``)."""
Period = Annotated[float, Meta(ge=0.001, extra={"unit": "duration"})]
"""A duration between two actions: a millisecond at least."""
ByteSize = Annotated[int, Meta(ge=0, extra={"unit": "size"})]
"""Bytes as a number; text with a unit in the file (``"24GiB"``)."""
SecretText = Annotated[str, Meta(extra={"secret": True})]
"""Becomes a ``Secret``, which is never printed. ``"env:NAME"`` and ``"file:PATH"`` are resolved."""
HiddenText = Annotated[str, Meta(extra={"hidden": True})]
"""Text that may be a secret. ``check`` shows only numbers, booleans and placeholders."""
Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
ProgressForm = Literal["off", "comments", "reasoning"]
BrokenStreamRule = Literal["continue", "restart", "error"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of all tables."""


def about(description: str, **limits: Any) -> Meta:
    """The description of a key, and what its value must keep, for the reference page, the schema and errors."""
    return Meta(description=description, **limits)
