"""What the server knows of the engine behind it.

Everything that decides *when* a token comes is on the other side of ``Engine``: admission, batching, memory, pace.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one request asks of the engine: ``choices`` continuations of each prompt.

    ``prompt_tokens`` counts all prompts together. ``max_tokens`` is the length of each continuation; 0 asks for the
    reading alone, as an embedding does.
    """

    prompts: Sequence[str]
    prompt_tokens: int
    max_tokens: int
    choices: int = 1


class Token(msgspec.Struct, frozen=True, gc=False):
    """One token of one continuation; choice ``c`` of prompt ``p`` has the number ``p * choices + c``.

    ``finish`` says why it is the last of its continuation, or is ``None``.
    """

    choice: int
    text: str
    finish: str | None = None


class Figures(msgspec.Struct, frozen=True):
    """How busy the engine is: requests that run, requests that wait, and the share of the KV cache in use (0 to 1)."""

    running: int
    waiting: int
    kv_usage: float


class Engine(Protocol):
    """The core of an inference engine."""

    def generate(self, work: Work) -> AsyncGenerator[Token, None]:
        """The tokens of ``work`` as they are made. Closing the generator aborts the request at once."""

    def figures(self) -> Figures:
        """How busy the engine is now."""
