"""What a request's body says, and names that clients chose."""

from __future__ import annotations

from enginehouse.domain.names import escaped, kept_name
from enginehouse.domain.request import Input, Message, Part, ResponseFormat
from enginehouse.domain.tokens import Tokens

__all__ = [
    "Input",
    "Message",
    "Part",
    "ResponseFormat",
    "Tokens",
    "escaped",
    "kept_name",
]
