"""What a request's body says, and names that clients chose."""

from __future__ import annotations

from enginehouse.domain.names import escaped as escaped
from enginehouse.domain.names import has_header as has_header
from enginehouse.domain.names import kept_name as kept_name
from enginehouse.domain.names import matches_any as matches_any
from enginehouse.domain.request import Input as Input
from enginehouse.domain.request import Message as Message
from enginehouse.domain.request import Part as Part
from enginehouse.domain.request import ResponseFormat as ResponseFormat
from enginehouse.domain.tokens import Tokens as Tokens
