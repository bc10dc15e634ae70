"""The first part of a stream, and the request that continues it at another engine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class PartialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has of a stream, for the driver of the engine that shall continue it."""

    path: str
    """The endpoint that the client asked."""
    body: bytes
    """The client's request, with the name that the continuing engine has for the model."""
    text: str
    """The text that the client has."""
    tokens: int | None = None
    """How many tokens ``text`` took; ``None`` if that is unknown."""
    ids: Sequence[int] | None = None
    """Tokens of ``text``, from its first one; ``None`` if they are unknown."""
    skip: int = 0
    """How many characters of ``text`` come after ``ids``: a token's text may be shown in part."""
    prompt_ids: msgspec.Raw | None = None
    """The tokens of the prompt, as a JSON array; ``None`` if they are unknown."""
    text_ids: Sequence[int] | None = None
    """``text`` as the continuing engine would tokenize it, where ``ids`` are unknown; ``None`` if it was not asked."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose answer continues where a ``PartialAnswer`` ends."""

    path: str
    body: bytes
    tokens: int
    """How many tokens of the answer the body repeats. The new engine does not count them as its own."""
    skip: int = 0
    """How many characters at the end of the client's text the new answer begins with. They are compared."""
    exact: bool = False
    """Whether the body has the tokens themselves (``PartialAnswer.ids``). A text may become other tokens."""


class StreamTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How the streams of an engine are made, as far as continuing them goes."""

    added: tuple[str, ...] = ()
    """What ``Driver.continuable`` adds to the events, and the gateway cuts out again: ``token_ids``, ``usage``, or the
    name of another field whose value is an object."""
    withholds_stop: bool = False
    """Whether the text is always behind the tokens by the length of the longest stop string less one, as in vLLM."""
    default_max_tokens: int | None = None
    """The ``max_tokens`` of ``/v1/completions`` if a request has none; ``None`` for all the context."""
    caches_prefixes: bool = False
    """Whether a prompt that the engine has read once is quickly read again."""
