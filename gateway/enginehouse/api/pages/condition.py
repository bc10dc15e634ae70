"""The condition of a replica in one word: of its engine and of its backend's health together."""

from __future__ import annotations

import msgspec

from enginehouse.domain.replica import AT_REST, Candidate, Health, ReplicaState
from enginehouse.fleet.backend_info import BackendStatus

_MOST_PROGRESS = 0.99
"""Of a load that takes longer than the last one did."""


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator should know first about a replica.

    ``word``: ``ready``, ``downloading``, ``placing`` (waiting for resources of a cluster), ``loading``,
    ``waiting for room``, ``sleeping``, ``stopped``, ``stopping``, ``draining``, ``failed``, ``unreachable``,
    ``unknown`` (not probed yet) or ``refused`` (its engine refuses this model).
    """

    word: str
    why: str | None = None
    """The last error, of one in trouble; how far a download is."""
    since: float | None = None
    """When that began, in seconds since the Unix epoch, if the gateway has seen it begin."""
    progress: float | None = None
    """How much of a load has passed, from 0 to 1, if it takes as long as the last one did."""


def condition(
    replica: Candidate,
    backend: BackendStatus,
    *,
    waiting: int,
    changed_at: tuple[float | None, float | None],
    now: float,
) -> Condition:
    """The condition of a replica for which so many requests wait.

    ``changed_at``: when it got its state and its backend its health, if they changed, in seconds as ``now``.
    """
    state = replica.state
    since, unhealthy_since = changed_at
    if state in (ReplicaState.PLACING, ReplicaState.DOWNLOADING):
        return Condition(word=state.value, why=backend.last_error, since=since)
    if state is ReplicaState.STARTING:
        progress = min(_MOST_PROGRESS, (now - since) / replica.wake_s) if since is not None and replica.wake_s else None
        return Condition(word="loading", since=since, progress=None if progress is None else round(progress, 2))
    if waiting and state in (*AT_REST, ReplicaState.SLEEPING, ReplicaState.STOPPING):
        return Condition(word="waiting for room", since=since)
    if state is ReplicaState.FAILED:
        return Condition(word="failed", why=backend.last_error, since=since)
    if backend.health is Health.UNHEALTHY:
        return Condition(word="unreachable", why=backend.last_error, since=unhealthy_since or backend.last_error_at)
    if state is not ReplicaState.READY:
        return Condition(word=state.value, since=since)
    if backend.draining:
        return Condition(word="draining")
    if backend.health is Health.UNKNOWN:
        return Condition(word="unknown", why=backend.last_error)
    return (
        Condition(word="refused", why=backend.last_error) if replica.suspect else Condition(word="ready", since=since)
    )
