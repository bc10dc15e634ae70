"""The backends by name, and the snapshot of what they offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.close_names import did_you_mean
from enginehouse.domain.errors import NotFound
from enginehouse.domain.replica import Candidate
from enginehouse.fleet.live_backend import LiveBackend
from enginehouse.fleet.pauses import NEVER
from enginehouse.fleet.snapshot import Snapshot


class PublishedBackends:
    """Keeps backends in the order of their addition. ``snapshot`` has what they offered when each was last published.

    ``declared``: the capabilities of models on every backend. ``has_suspects``: some backend refuses a model.
    ``on_published`` gets the name of each backend that was published, ``on_replicas`` is called after additions and
    removals of replicas. Both see the new snapshot.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        on_published: Callable[[str], None],
        on_replicas: Callable[[], None] | None,
    ) -> None:
        self.by_name: dict[str, LiveBackend] = {}
        self.declared: dict[str, Capabilities] = {}
        self.snapshot = Snapshot()
        self.has_suspects = False
        self._clock = clock
        self._on_published = on_published
        self._on_replicas = on_replicas
        self._pause_ends = NEVER
        self._places: dict[str, int] = {}
        self._next_place = count()

    def find(self, name: str) -> LiveBackend:
        """The backend ``name``. Raises ``NotFound``."""
        live = self.by_name.get(name)
        if live is None:
            raise _not_found("backend", name, self.by_name)
        return live

    def find_replica(self, name: str) -> tuple[LiveBackend, str]:
        """The backend and the model of the replica ``name``. Raises ``NotFound``."""
        for live in self.by_name.values():
            for model, candidate in live.offers.items():
                if candidate.replica == name:
                    return live, model
        replicas = (each.replica for live in self.by_name.values() for each in live.offers.values())
        raise _not_found("replica", name, replicas)

    def add(self, live: LiveBackend) -> None:
        """Add a backend, whose name is new."""
        self.by_name[live.info.name] = live
        self._places[live.info.name] = next(self._next_place)
        self.publish(live)

    def remove(self, name: str) -> None:
        """Remove a backend. Raises ``NotFound``."""
        live = self.find(name)
        del self.by_name[name]
        self._offer(live, {})
        del self._places[name]

    def replace(self, backends: dict[str, LiveBackend], declared: Mapping[str, Capabilities]) -> None:
        """Have these backends instead, and publish them all at once."""
        before, now = self.snapshot.replicas(), self._clock()
        self.declared, self.by_name = dict(declared), backends
        self._places = {name: place for place, name in enumerate(backends)}
        self._next_place = count(len(backends))
        for live in backends.values():
            live.offers = live.candidates(self.declared, now)
        self.snapshot = Snapshot.of((live.offers for live in backends.values()), self._unlisted())
        self._note_pauses(now)
        if self._on_replicas is not None and before != self.snapshot.replicas():
            self._on_replicas()

    def publish(self, live: LiveBackend) -> None:
        """Put what ``live`` offers now into the snapshot."""
        now = self._clock()
        self._offer(live, live.candidates(self.declared, now))
        self._on_published(live.info.name)
        if live.pauses.any or self.has_suspects or self._pause_ends < NEVER:
            self._note_pauses(now)

    def end_pauses(self) -> None:
        """Publish what has changed because a pause has ended."""
        if self._pause_ends < NEVER and self._clock() >= self._pause_ends:
            for live in self.by_name.values():
                self.publish(live)

    def _note_pauses(self, now: float) -> None:
        pauses = [live.pauses for live in self.by_name.values()]
        self._pause_ends = min((each.next_end(now) for each in pauses), default=NEVER)
        self.has_suspects = any(each.suspects for each in pauses)

    def _offer(self, live: LiveBackend, offers: dict[str, Candidate]) -> None:
        before, live.offers = live.offers, offers
        self.snapshot = self.snapshot.replacing(before, offers, self._places, self._unlisted())
        if self._on_replicas is not None and before.keys() != offers.keys():
            self._on_replicas()

    def _unlisted(self) -> tuple[str, ...]:
        return tuple([name for name, live in self.by_name.items() if not live.listed])


def _not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    hint = did_you_mean(name, list(known))
    return NotFound(f"There is no {kind} '{name}'" + (f"; {hint}" if hint else ""))
