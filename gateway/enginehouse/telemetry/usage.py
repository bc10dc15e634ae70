"""The tokens that an engine counted, as its answers report them."""

from __future__ import annotations

from typing import Final

import msgspec


class Usage(msgspec.Struct, gc=False):
    """OpenAI's counts, and those of its Responses and of Anthropic."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Counted(msgspec.Struct, gc=False):
    """An answer, or the end of one."""

    usage: Usage | None = None


decode_counted: Final = msgspec.json.Decoder(Counted).decode
"""Reads the counts in an answer. Raises ``ValueError`` or ``RecursionError`` unless it is a JSON object."""
