"""The prefix caches of engines that publish events, as drivers and strategies follow them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec


class PromptTokens(msgspec.Struct, frozen=True):
    """The token ids of a prompt. ``ends``: the characters up to the end of each token; empty if they are unknown."""

    ids: Sequence[int]
    ends: Sequence[int] = ()


class EngineCaches(Protocol):
    """What engines have in their caches, and the tokens of prompts."""

    def follows(self, backend: str) -> bool:
        """Whether ``backend`` publishes the events of its cache, as the configuration says."""

    def listen(self, on_events: Callable[[str, list[Any]], None]) -> None:
        """Call ``on_events`` with each backend's events, in their order, beginning with what is still known of it.

        They are what its driver reports: a ``CacheEvent`` of the kit each.
        """

    def tokenize(self, backend: str, model: str, body: bytes, on_tokens: Callable[[PromptTokens], None]) -> None:
        """Ask the engine of ``backend`` to tokenize the prompt of a request with this ``body``.

        ``model``: the engine's name for the model. ``on_tokens`` is called later, or never if the engine is busy with
        others or cannot.
        """


class CacheFollower(ABC):
    """Follows the prefix cache of one engine until ``close``."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether the engine can be heard now."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether all events since the cache was empty are known."""

    @property
    @abstractmethod
    def gaps(self) -> tuple[int, int]:
        """The gaps that were filled, and those that could not be."""

    @abstractmethod
    def begin_anew(self) -> None:
        """Tell all that the engine still knows of its cache once more: now, or when it is there."""

    @abstractmethod
    def close(self) -> None:
        """Follow no longer."""
