"""The fleet: every backend, what it serves and how it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from enginehouse.config.decode import did_you_mean
from enginehouse.config.schema import Checks
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import ConfigError, NotFound
from enginehouse.domain.replica import Candidate, Health, Load, ReplicaState
from enginehouse.fleet.backend import Backend, BackendStatus
from enginehouse.fleet.member import Member
from enginehouse.fleet.snapshot import Snapshot


class Fleet:
    """Keeps the backends and publishes ``snapshot`` anew whenever something that a decision reads has changed.

    ``clock``: seconds. ``on_health`` is told of a backend whose health changed, ``on_state`` of a replica whose state
    changed, ``on_replicas`` that some have come or gone, all after the new snapshot is in place. Methods that take a
    name raise ``NotFound`` if there is no such thing, except for those that report how it is: the backend may have left
    by then.
    """

    def __init__(
        self,
        checks: Checks,
        clock: Callable[[], float],
        *,
        on_health: Callable[[str, Health], None] | None = None,
        on_state: Callable[[str, ReplicaState], None] | None = None,
        on_replicas: Callable[[], None] | None = None,
    ) -> None:
        self.snapshot = Snapshot()
        self._checks = checks
        self._clock = clock
        self._on_health = on_health
        self._on_state = on_state
        self._on_replicas = on_replicas
        self._members: dict[str, Member] = {}
        self._declared: dict[str, Capabilities] = {}
        self._places: dict[str, int] = {}
        self._next_place = count()

    def add(self, backend: Backend) -> None:
        """Take a backend in. Raises ``ConfigError`` if the fleet has one of that name."""
        if backend.name in self._members:
            raise ConfigError(f"there is already a backend '{backend.name}'", remedy="give it another name")
        self._members[backend.name] = member = Member(backend, self._checks)
        self._places[backend.name] = next(self._next_place)
        self._publish(member)

    def remove(self, name: str) -> None:
        """Let a backend go. Requests that it still serves end by themselves."""
        member = self._member(name)
        self._offer(member, {})
        del self._members[name], self._places[name]

    def become(self, other: Fleet) -> None:
        """Have, from now on and in their order, the backends that ``other`` has, judged by its checks.

        One that is still where it was keeps what is known of it: health, load, discovered models, states, draining.
        Backends that are not in ``other`` are gone; requests that they still serve end by themselves.
        """
        before = {each.replica for row in self.snapshot.models.values() for each in row}
        members = {name: self._continued(member) for name, member in other._members.items()}
        for member in members.values():
            member.health.judge_by(other._checks)
            member.offers = member.candidates(other._declared)
        self._checks, self._declared, self._members = other._checks, dict(other._declared), members
        self._places = {name: place for place, name in enumerate(members)}
        self._next_place = count(len(members))
        self.snapshot = Snapshot.of(member.offers for member in members.values())
        after = {each.replica for row in self.snapshot.models.values() for each in row}
        if self._on_replicas is not None and before != after:
            self._on_replicas()

    def _continued(self, new: Member) -> Member:
        known = self._members.get(new.backend.name)
        if known is None or not known.is_where(new.backend):
            return new
        known.backend = new.backend
        return known

    def set_models(self, name: str, models: Mapping[str, Capabilities]) -> None:
        """The models a backend says it serves, and what it says of them.

        For a backend that declares its models this only fills gaps in what is known of those.
        """
        member = self._member(name)
        if models != member.discovered:
            member.discovered = dict(models)
            self._publish(member)

    def declare(self, model: str, capabilities: Capabilities) -> None:
        """What ``model`` can do wherever it is served: stronger than what engines say, weaker than a backend's own."""
        self._declared[model] = capabilities
        for candidate in self.snapshot.candidates(model):
            self._publish(self._members[candidate.backend])

    def succeeded(self, name: str) -> None:
        """A probe of, or a request to, the backend went well."""
        member = self._members.get(name)
        if member is not None and not member.health.steady and member.health.succeeded():
            self._health_changed(member)

    def failed(self, name: str, why: str) -> None:
        """A probe of, or a request to, the backend failed; of one whose engine is not meant to run, that is no news."""
        member = self._members.get(name)
        if member is not None and member.runs and member.health.failed(why, self._clock()):
            self._health_changed(member)

    def gone(self, name: str, why: str) -> None:
        """The backend is known not to work: nobody has to find that out by trying."""
        member = self._members.get(name)
        if member is not None and member.health.gone(why, self._clock()):
            self._health_changed(member)

    def drain(self, name: str) -> None:
        """Send the backend no new requests."""
        self._set_draining(name, True)

    def undrain(self, name: str) -> None:
        """Send the backend new requests again."""
        self._set_draining(name, False)

    def set_state(self, replica: str, state: ReplicaState, wake_s: float = 0.0, problem: str = "") -> None:
        """A managed replica is now in ``state``, and would take ``wake_s`` seconds until it serves.

        ``problem``, if there is one, becomes the last error of its backend. One that is not ready has its past failures
        forgiven: a request may have it started again.
        """
        member, model = self._replica(replica)
        before = member.offers[model].state
        forgiven = state is not ReplicaState.READY and member.health.forgiven()
        if problem:
            member.health.note(problem, self._clock())
        member.states[model] = (state, wake_s)
        self._publish(member)
        if forgiven and self._on_health is not None:
            self._on_health(member.backend.name, member.health.health)
        if state is not before and self._on_state is not None:
            self._on_state(replica, state)

    def health(self, name: str) -> Health:
        """What probes and requests say of a backend."""
        return self._member(name).health.health

    def load(self, name: str) -> Load:
        """The live figures of a backend: the same object for as long as the backend is here."""
        return self._member(name).load

    def backends(self) -> tuple[BackendStatus, ...]:
        """How every backend is now, in the order in which they were added."""
        return tuple(member.status() for member in self._members.values())

    def _publish(self, member: Member) -> None:
        self._offer(member, member.candidates(self._declared))

    def _offer(self, member: Member, offers: dict[str, Candidate]) -> None:
        before, member.offers = member.offers, offers
        self.snapshot = self.snapshot.replacing(before, offers, self._places)
        if self._on_replicas is not None and before.keys() != offers.keys():
            self._on_replicas()

    def _health_changed(self, member: Member) -> None:
        self._publish(member)
        if self._on_health is not None:
            self._on_health(member.backend.name, member.health.health)

    def _set_draining(self, name: str, draining: bool) -> None:
        member = self._member(name)
        if member.draining is not draining:
            member.draining = draining
            self._publish(member)

    def _member(self, name: str) -> Member:
        member = self._members.get(name)
        if member is None:
            raise _not_found("backend", name, self._members)
        return member

    def _replica(self, name: str) -> tuple[Member, str]:
        for member in self._members.values():
            for model, candidate in member.offers.items():
                if candidate.replica == name:
                    return member, model
        raise _not_found(
            "replica", name, (c.replica for member in self._members.values() for c in member.offers.values())
        )


def _not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    hint = did_you_mean(name, list(known))
    return NotFound(f"There is no {kind} '{name}'" + (f"; {hint}" if hint else ""))
