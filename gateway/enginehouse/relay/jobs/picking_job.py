"""A request whose bytes somebody else moves."""

from __future__ import annotations

from collections.abc import Collection

from enginehouse.domain.errors import ModelNotFound, NoHealthyBackend
from enginehouse.domain.replica import Candidate, Route, Snapshot
from enginehouse.relay.jobs.job import InferenceJob


class PickingJob(InferenceJob):
    """A request of which the gateway only decides where it goes.

    ``among``: the addresses that it may go to, each with or without its port; ``None`` for all.
    """

    among: Collection[str] | None = None

    def route(self, failed: tuple[str, ...]) -> Route:
        try:
            return super().route(failed)
        except ModelNotFound:
            assert self.requirements is not None
            if self.among is None or not self.context.fleet.snapshot.candidates(self.requirements.model):
                raise
            raise NoHealthyBackend(self.requirements.model, {"among": sorted(self.among)}) from None

    def _snapshot(self) -> Snapshot:
        snapshot = self.context.fleet.snapshot
        if self.among is None:
            return snapshot
        rows = {model: tuple([each for each in row if self._may_go(each)]) for model, row in snapshot.models.items()}
        return Snapshot({model: row for model, row in rows.items() if row})

    def _may_go(self, candidate: Candidate) -> bool:
        """Whether the address of ``candidate`` is one of those that the request may go to."""
        among = self.among
        assert among is not None
        upstream = self.context.upstreams.get(candidate.backend)
        host, port = upstream.address if upstream is not None else ("", 0)
        return host in among or f"{host}:{port}" in among or f"[{host}]:{port}" in among

    def _continuable(self, route: Route, body: bytes) -> bytes:
        """``body`` as it is: a stream that nobody reads here cannot be continued."""
        return body
