"""``memory``: as many models as fit the host's budget; the least recently used are evicted first."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import Swapper
from enginehouse.errors import LoadFailed
from enginehouse.tickets import HostFacts

_GIB = 1024**3
_MIB = 1024**2


class Memory(Swapper):
    """Evicts the least recently used replicas until the target fits, and no more; never a pinned one.

    The size of a replica is the declared one, else the measured one, else the estimate from its files. A replica of
    unknown size, or of one that its files alone make too large, counts as all the memory that pinned replicas leave, so
    it runs beside those only. A sleeping one counts with the measured memory that it still holds. Without a budget, no
    replica is ever evicted.
    """

    def __init__(self) -> None:
        self._host = HostFacts(name="")

    def prepare(self, host: HostFacts) -> None:
        self._host = host

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The replicas to stop so that ``target`` fits, in their order. Raises ``LoadFailed`` if it cannot fit."""
        budget = self._host.memory
        if budget is None or (target in running and target not in self._host.asleep):
            return []
        running = [each for each in running if each != target]
        pinned = [each for each in running if self._host.replicas[each].pin]
        unpinned = [each for each in running if each not in pinned]
        left = budget - sum(self._held(each) or 0 for each in pinned)
        needed = self._size(target)
        if needed is None or (needed > left and self._known_size(target) is None):
            return unpinned
        if needed > left:
            raise LoadFailed(self._never(target, needed, budget, pinned))
        kept = self._kept(unpinned, left - needed)
        return [each for each in unpinned if each not in kept]

    def _held(self, replica: str) -> int | None:
        """The bytes that a running replica holds, ``None`` if nothing is known yet."""
        kept = self._host.asleep.get(replica)
        return self._size(replica) if kept is None else kept

    def _size(self, replica: str) -> int | None:
        """The bytes of a replica, ``None`` if nothing is known yet."""
        known = self._known_size(replica)
        return self._host.estimated.get(replica) if known is None else known

    def _known_size(self, replica: str) -> int | None:
        """The bytes of a replica that are declared or were measured."""
        declared = self._host.replicas[replica].memory
        return self._host.measured.get(replica) if declared is None else declared

    def _kept(self, running: Sequence[str], room: int) -> set[str]:
        """The replicas of ``running`` that may stay in ``room`` bytes."""
        sizes = {each: size for each in running if (size := self._held(each)) is not None}
        kept = dict(sizes)
        for oldest in sizes:
            if sum(kept.values()) <= room:
                break
            del kept[oldest]
        for newest in reversed([each for each in sizes if each not in kept]):
            if sum(kept.values()) + sizes[newest] <= room:  # a larger one was evicted after it
                kept[newest] = sizes[newest]
        return set(kept)

    def _never(self, target: str, needed: int, budget: int, pinned: Sequence[str]) -> str:
        host, replicas = self._host.name, self._host.replicas
        text = f"Model '{replicas[target].model}' needs {_text(needed)}, host '{host}' has {_text(budget)}"
        if pinned:
            held = ", ".join(f"'{replicas[each].model}' {_text(self._held(each) or 0)}" for each in pinned)
            return f"{text}, of which pinned models hold: {held} (unpin or unload one, or raise hosts.{host}.memory)"
        return f"{text} (raise hosts.{host}.memory, or correct the model's memory)"


def _text(size: int) -> str:
    """Bytes in words: ``6.5 GiB``."""
    unit, name = (_GIB, "GiB") if size >= _GIB else (_MIB, "MiB")
    return f"{round(size / unit, 2):g} {name}"
