"""The fleet: every backend, the models that it serves, and its live state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from enginehouse.config.schema import CheckSettings
from enginehouse.domain.backend_status import BackendStatus
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import ConfigError, NotFound
from enginehouse.domain.names import did_you_mean
from enginehouse.domain.replica import Candidate, Health, Load, ReplicaState, Snapshot
from enginehouse.fleet.live_backend import NEVER, BackendInfo, LiveBackend
from enginehouse.fleet.stale_averages import StaleAverages
from enginehouse.fleet.workers import BackendView, OutcomeReports, follow, view_of


def _unheard(*_: object) -> None:
    """Nobody wants to hear of it."""


class Fleet:
    """Keeps the backends and publishes a new ``snapshot`` whenever the facts of a decision change.

    ``clock`` returns seconds. Once the new snapshot is in place, the fleet calls ``on_health`` with a backend whose
    health changed and the reason if it is unhealthy, ``on_hung`` with one that hangs and the reason, ``on_draining``
    with one that is drained or no longer is, and ``on_replicas`` after additions and removals.

    Methods that take a name raise ``NotFound`` for an unknown one. Only reports of probes and requests ignore it,
    because the backend may have been removed since.

    ``has_suspects``: some backend refuses a model, so ``served`` has to be told of answers.

    In a worker, another process has the last word on backends. ``reports`` takes the outcomes of requests there, while
    this fleet judges by them at once, and ``refresh`` is called before the snapshot is read. In that other process,
    ``on_facts`` is called with each backend whose facts changed.
    """

    def __init__(
        self,
        checks: CheckSettings,
        clock: Callable[[], float],
        *,
        on_health: Callable[[str, Health, str], None] = _unheard,
        on_hung: Callable[[str, str], None] = _unheard,
        on_draining: Callable[[str, bool], None] = _unheard,
        on_replicas: Callable[[], None] = _unheard,
    ) -> None:
        self._snapshot = Snapshot()
        self._averages = StaleAverages(clock())
        self._pause_ends = NEVER
        self.has_suspects = False
        self.reports: OutcomeReports | None = None
        self.refresh: Callable[[], None] | None = None
        self.on_facts: Callable[[str], None] | None = None
        self._checks = checks
        self._clock = clock
        self._on_health = on_health
        self._on_hung = on_hung
        self._on_draining = on_draining
        self._on_replicas = on_replicas
        self._backends: dict[str, LiveBackend] = {}
        self._declared: dict[str, Capabilities] = {}
        self._places: dict[str, int] = {}
        self._next_place = count()
        self._unlisted: tuple[str, ...] = ()
        self._publishes = True

    @property
    def snapshot(self) -> Snapshot:
        """The candidates of every model now."""
        if self.refresh is not None:
            self.refresh()
        if self._pause_ends < NEVER:
            self._resume()
        return self._snapshot

    def defer(self) -> None:
        """Publish nothing until ``publish_all``: each publication looks at every model again."""
        self._publishes = False

    def publish_all(self) -> None:
        """Publish what has happened since ``defer``."""
        self._publishes = True
        self._snapshot = Snapshot.of((live.offers for live in self._backends.values()), self._list_unlisted())
        self._on_replicas()

    def add(self, backend: BackendInfo) -> None:
        """Add a backend. Raises ``ConfigError`` if its name is taken."""
        if backend.name in self._backends:
            raise ConfigError(f"there is already a backend '{backend.name}'", remedy="give it another name")
        self._backends[backend.name] = live = LiveBackend(backend, self._checks)
        self._places[backend.name] = next(self._next_place)
        self._publish(live)

    def remove(self, name: str) -> None:
        """Remove a backend. Its requests in flight continue."""
        live = self._backend(name)
        del self._backends[name]
        self._offer(live, {})
        del self._places[name]

    def become(self, other: Fleet) -> None:
        """Take over the backends of ``other``, their order and its checks.

        A backend whose engine server is the same keeps its health, load, discovered models, states and draining.
        Backends that ``other`` does not have are removed; their requests in flight continue.
        """
        before = {each.replica for row in self._snapshot.models.values() for each in row}
        backends = {name: self._continued(live) for name, live in other._backends.items()}
        for live in backends.values():
            live.health.reconfigure(other._checks)
            live.pauses.first_s = other._checks.interval
            live.offers = live.candidates(other._declared, self._clock())
        self._checks, self._declared, self._backends = other._checks, dict(other._declared), backends
        self._places = {name: place for place, name in enumerate(backends)}
        self._next_place = count(len(backends))
        self._snapshot = Snapshot.of((live.offers for live in backends.values()), self._list_unlisted())
        after = {each.replica for row in self._snapshot.models.values() for each in row}
        self._note_pauses(self._clock())
        if before != after:
            self._on_replicas()

    def _continued(self, new: LiveBackend) -> LiveBackend:
        known = self._backends.get(new.info.name)
        if known is None or not known.is_same_server(new.info):
            return new
        known.info = new.info
        known.load.slots = new.load.slots or known.load.slots
        return known

    def set_models(self, name: str, models: Mapping[str, Capabilities]) -> None:
        """Set the models that a backend lists, with their reported capabilities.

        For a backend that declares its models, this only fills in unknown capabilities.
        """
        live = self._backend(name)
        if not live.listed or models != live.discovered:
            live.discovered, live.has_listed = dict(models), True
            live.pauses.clear_all()
            self._publish(live)

    def set_proxied(self, name: str, models: frozenset[str]) -> None:
        """Set which models of a backend that loads models itself need no load."""
        live = self._backend(name)
        if models != live.proxied:
            live.proxied = models
            self._publish(live)

    def list_failed(self, name: str, why: str) -> None:
        """Report that the backend did not list its models. A failed probe, unless its models are known."""
        live = self._backends.get(name)
        if live is not None and not live.listed:
            self.probe_failed(name, f"its models could not be listed: {why}")

    def declare(self, model: str, capabilities: Capabilities) -> None:
        """Set the capabilities of ``model``. They win over reported ones; a backend's own settings win over them."""
        self._declared[model] = capabilities
        for candidate in self._snapshot.candidates(model):
            self._publish(self._backends[candidate.backend])

    def probe_succeeded(self, name: str) -> None:
        """Report that a probe of the backend succeeded. Ignored while its models are unknown."""
        live = self._backends.get(name)
        if live is None:
            return
        live.load.error_share = live.errors.share(self._clock())
        if live.health.steady or not live.listed:
            return
        if live.health.probe_succeeded(self._clock()):
            live.pauses.clear_all()
            self._health_changed(live)

    def probe_failed(self, name: str, why: str, *, late: bool = False) -> None:
        """Report that a probe of the backend failed. Ignored unless its engine is meant to run.

        ``late``: it got no answer in time.
        """
        live = self._backends.get(name)
        if live is not None and live.runs:
            self._judged(live, live.health.probe_failed(why, self._clock(), late=late))

    def succeeded(self, name: str) -> None:
        """Report that a request of the backend was answered. Ignored while its models are unknown."""
        live = self._backends.get(name)
        if live is None:
            return
        if self.reports is not None:
            self.reports.succeeded(name, live.health.steady)
        live.errors.good += 1
        if not live.health.steady and live.listed and live.health.succeeded():
            self._health_changed(live)

    def failed(self, name: str, why: str) -> None:
        """Report that a request of the backend failed. Ignored unless its engine is meant to run."""
        live = self._failing("failed", name, why)
        if live is not None:
            self._judged(live, live.health.failed(why, self._clock()))

    def doubted(self, name: str, why: str) -> None:
        """Report a failed request that may be at fault itself. Ignored unless the engine is meant to run."""
        live = self._failing("doubted", name, why)
        if live is not None:
            self._judged(live, live.health.doubted(why, self._clock()))

    def _failing(self, report: str, name: str, why: str) -> LiveBackend | None:
        """Pass the ``report`` on, and count a bad answer. Returns the backend if its engine is meant to run."""
        live = self._told(report, name, why)
        if live is None or not live.runs:
            return None
        live.load.error_share = live.errors.failed(self._clock())
        return live

    def _told(self, report: str, name: str, *facts: object) -> LiveBackend | None:
        """Pass the ``report`` of a request on. Returns the backend if it is known."""
        if self.reports is not None:
            self.reports.tell(report, name, *facts)
        return self._backends.get(name)

    def model_to_test(self, name: str) -> str | None:
        """A ready model of a backend that failed requests, and that a probe may make healthy again now.

        It has the name that the engine knows.
        """
        live = self._backends.get(name)
        if live is None or not live.health.is_doubtful(self._clock()):
            return None
        ready = (each for each in live.offers.values() if each.state is ReplicaState.READY)
        return next((each.name_there or each.model for each in ready), None)

    def answered(self, load: Load, latency_ms: float) -> None:
        """Report the time to the first byte of an answer of the backend with this ``load``."""
        load.answered(latency_ms)
        if self.reports is not None:
            self.reports.answered(load, latency_ms)
        self._averages.left -= 1
        if self._averages.left <= 0:
            rows = [[each.load for each in row] for row in self._snapshot.models.values()]
            self._averages.age(rows, len(self._backends), self._clock())

    def served(self, name: str, model: str) -> None:
        """Report that the backend did not refuse ``model``: it is not suspect any more."""
        live = self._told("served", name, model)
        if live is not None and live.pauses.clear(model):
            self._publish(live, model)

    def refused(self, name: str, model: str, status: int) -> None:
        """Report that the backend refused ``model`` with ``status`` though another backend serves it."""
        live = self._told("refused", name, model, status)
        if live is not None:
            now = self._clock()
            live.health.note(f"answered {status} to a request for '{model}' that another backend could serve", now)
            live.pauses.suspect(model, status, now)
            live.load.error_share = live.errors.failed(now)
            self._publish(live, model)

    def leave_alone(self, name: str, seconds: float) -> None:
        """Send requests to other backends for so long: the engine asked for that."""
        live = self._told("leave_alone", name, seconds)
        if live is not None:
            live.pauses.leave_alone(self._clock() + seconds)
            self._publish(live)

    def mark_unhealthy(self, name: str, why: str) -> None:
        """Make the backend unhealthy at once, without waiting for ``checks.failures``."""
        live = self._backends.get(name)
        if live is not None and live.health.mark_unhealthy(why, self._clock()):
            self._health_changed(live)

    def mark_hung(self, name: str, why: str) -> None:
        """Make a backend unhealthy whose engine serves nobody, until that has served a request."""
        self.mark_unhealthy(name, why)
        live = self._backends.get(name)
        if live is not None:
            live.health.hung = True
            self._on_hung(name, why)

    def drain(self, name: str) -> None:
        """Send the backend no new requests."""
        self._set_draining(name, True)

    def undrain(self, name: str) -> None:
        """Send the backend new requests again."""
        self._set_draining(name, False)

    def set_state(
        self,
        replica: str,
        state: ReplicaState,
        wake_s: float = 0.0,
        problem: str = "",
        *,
        cache_kept: int = 0,
        node: str = "",
        unit: str = "",
    ) -> None:
        """Set the state of a managed replica. ``wake_s``: the expected seconds until it can serve.

        ``cache_kept``: the estimated tokens that are in its prefix cache again then.

        A ``problem`` becomes the last error of its backend. A launched replica that is not ready counts as healthy,
        because a request may start it again. ``node``, ``unit``: the labels of the place of a ready one; empty if its
        host has them.
        """
        live, model = self._replica(replica)
        forgiven = not live.info.loads_models and state is not ReplicaState.READY and live.health.reset()
        if problem:
            live.health.note(problem, self._clock())
        live.states[model] = (state, wake_s, cache_kept)
        if state is not live.offers[model].state:
            live.state_since[model] = self._clock()
        if state is ReplicaState.READY:
            live.node, live.unit = node, unit
        else:
            live.pauses.clear(model)
        self._publish(live, "" if forgiven else model)
        if forgiven:
            self._on_health(live.info.name, live.health.health, "")

    def health(self, name: str) -> Health:
        return self._backend(name).health.health

    def changed_at(self, candidate: Candidate) -> tuple[float | None, float | None]:
        """When a replica got its state, and its backend its health; ``None`` if they have not changed yet."""
        live = self._backend(candidate.backend)
        return live.state_since.get(candidate.model), live.health_since

    def load(self, name: str) -> Load:
        """The live figures of a backend. The object stays the same until the backend is removed."""
        return self._backend(name).load

    def backends(self) -> tuple[BackendStatus, ...]:
        """The status of every backend, in the order of their addition."""
        now = self._clock()
        return tuple(live.status(now) for live in self._backends.values())

    def view(self, name: str) -> BackendView | None:
        """The state of a backend for the fleets of workers; ``None`` if it was removed."""
        live = self._backends.get(name)
        return view_of(live) if live is not None else None

    def follow(self, view: BackendView) -> None:
        """Take over the state of a backend, as another fleet has it. One that is unknown here is ignored."""
        live = self._backends.get(view.name)
        if live is not None:
            follow(live, view)
            self._publish(live)

    def _publish(self, live: LiveBackend, model: str = "") -> None:
        """Publish the facts of a backend, or only those of its ``model``: a server may have thousands."""
        now, known = self._clock(), live.offers.get(model)
        if known is None:
            self._offer(live, live.candidates(self._declared, now))
        elif (new := live.candidate(model, known.capabilities, now)) is not known:
            live.offers = {**live.offers, model: new}
            if self._publishes:
                self._snapshot = self._snapshot.exchanging(known, new)
        if self.on_facts is not None:
            self.on_facts(live.info.name)
        pauses = live.pauses
        if pauses.left_alone_until or pauses.suspicions or self.has_suspects or self._pause_ends < NEVER:
            self._note_pauses(now)

    def _note_pauses(self, now: float) -> None:
        pauses = [live.pauses for live in self._backends.values()]
        if now < self._pause_ends:  # else a pause has ended, and `_resume` has to publish that yet
            self._pause_ends = min((each.next_end(now) for each in pauses), default=NEVER)
        self.has_suspects = any(each.suspicions for each in pauses)

    def _resume(self) -> None:
        """Publish what has changed because a pause has ended."""
        now = self._clock()
        if now >= self._pause_ends:
            self._pause_ends = NEVER
            for live in self._backends.values():
                self._publish(live)
            self._note_pauses(now)  # from then on: one may have ended meanwhile

    def _offer(self, live: LiveBackend, offers: dict[str, Candidate]) -> None:
        before, live.offers = live.offers, offers
        if not self._publishes:
            return
        name = live.info.name
        awaited = not live.listed and name in self._backends
        if awaited is not (name in self._unlisted):
            self._list_unlisted()
        self._snapshot = self._snapshot.replacing(before, offers, self._places, self._unlisted)
        if before.keys() != offers.keys():
            self._on_replicas()

    def _list_unlisted(self) -> tuple[str, ...]:
        self._unlisted = tuple([name for name, live in self._backends.items() if not live.listed])
        return self._unlisted

    def _health_changed(self, live: LiveBackend) -> None:
        live.health_since = self._clock()
        if live.health.health is Health.HEALTHY:
            live.load.forget_latencies()
        self._publish(live)
        self._on_health(live.info.name, live.health.health, live.health.problem)

    def _judged(self, live: LiveBackend, changed: bool) -> None:
        """Publish what a failure of the backend has ``changed``: its health, or whether only its probes are late."""
        if changed:
            self._health_changed(live)
        elif any(each.late is not live.health.late for each in live.offers.values()):
            self._publish(live)

    def _set_draining(self, name: str, draining: bool) -> None:
        live = self._backend(name)
        if live.draining is not draining:
            live.draining = draining
            self._publish(live)
            self._on_draining(name, draining)

    def _backend(self, name: str) -> LiveBackend:
        live = self._backends.get(name)
        if live is None:
            raise _not_found("backend", name, self._backends)
        return live

    def _replica(self, name: str) -> tuple[LiveBackend, str]:
        at = name.find("@")
        while at >= 0:  # names of models and of backends may have such a sign too
            live, model = self._backends.get(name[at + 1 :]), name[:at]
            if live is not None and model in live.offers:
                return live, model
            at = name.find("@", at + 1)
        raise _not_found("replica", name, (c.replica for live in self._backends.values() for c in live.offers.values()))


def _not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    hint = did_you_mean(name, list(known))
    return NotFound(f"There is no {kind} '{name}'" + (f"; {hint}" if hint else ""))
