"""Swappers: what must go so that a model can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Swapper(Protocol):
    """An eviction policy."""

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The replicas of ``running`` that must stop so that ``target`` can run.

        ``running`` is every replica that is not stopped and every target of a swap in flight. Pure: asked often, for
        swaps that may never happen, so it neither logs nor remembers.
        """

    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        """A swap really begins; called once for each."""
