"""The first part of a stream, and the request that continues it at another engine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class PartialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a stream that a client has, for the driver of the engine that will continue it."""

    path: str
    """The endpoint of the client's request."""
    body: bytes
    """The client's request, with the name that the continuing engine has for the model."""
    text: str
    """The text that the client has."""
    tokens: int | None = None
    """The number of tokens of ``text``; ``None`` if it is unknown."""
    events: int = 0
    """The number of events that brought ``text``. Each had one token at least, and in most engines no more."""
    ids: Sequence[int] | None = None
    """The tokens of ``text``, beginning with the first; ``None`` if they are unknown."""
    skip: int = 0
    """The number of characters of ``text`` that come after ``ids``: the client may have a part of a token's text."""
    prompt_ids: msgspec.Raw | None = None
    """The tokens of the prompt, as a JSON array; ``None`` if they are unknown."""
    pieces: Sequence[str] | None = None
    """``text`` as its events brought it, each the text of one token, or of the tokens that share a character. ``None``
    unless all engines of the answer are ``StreamTraits.token_by_token``."""
    text_ids: Sequence[int] | None = None
    """The tokens that the continuing engine makes of ``text``, if ``ids`` are unknown; ``None`` if it was not asked."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose answer continues where a ``PartialAnswer`` ends."""

    path: str
    body: bytes
    tokens: int
    """The number of tokens of the answer that the body repeats. The new engine does not count them as output."""
    skip: int = 0
    """The number of characters at the end of the client's text that the new answer repeats. The gateway checks them."""
    exact: bool = False
    """Whether the body has the tokens themselves (``PartialAnswer.ids``). A text may become other tokens."""


class StreamTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of an engine's streams that matter for continuing them."""

    added: tuple[str, ...] = ()
    """The fields that ``SupportsContinuation.continuable`` adds to the events, and that the gateway removes again:
    ``token_ids``, ``usage``, or the name of another field whose value is an object."""
    withholds_stop: bool = False
    """Whether the text lags behind the tokens by the length of the longest stop string minus one, as in vLLM."""
    default_max_tokens: int | None = None
    """The ``max_tokens`` of ``/v1/completions`` if a request has none; ``None`` for the whole context."""
    token_by_token: bool = False
    """Whether each event has the text of one token, or of the tokens that share a character."""
    caches_prefixes: bool = False
    """Whether the engine reads a prompt quickly that it has read before."""
