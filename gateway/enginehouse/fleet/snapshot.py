"""What a routing decision reads: every model with its candidates, frozen at one moment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from enginehouse.domain.replica import Candidate


class Snapshot(msgspec.Struct, frozen=True):
    """The fleet at one moment. ``models``: each model that something serves, with its candidates, never none.

    A snapshot never changes; only the load figures that its candidates point to do.
    """

    models: Mapping[str, tuple[Candidate, ...]] = MappingProxyType({})

    @classmethod
    def of(cls, offers: Iterable[Mapping[str, Candidate]]) -> Snapshot:
        """The snapshot of what backends offer, by model, in the order of the backends."""
        models: dict[str, tuple[Candidate, ...]] = {}
        for offered in offers:
            for model, candidate in offered.items():
                models[model] = (*models.get(model, ()), candidate)
        return cls(MappingProxyType(models))

    def candidates(self, model: str) -> tuple[Candidate, ...]:
        """The replicas that serve ``model``, healthy or not; none if nothing is known of it."""
        return self.models.get(model, ())

    def replacing(
        self, before: Mapping[str, Candidate], after: Mapping[str, Candidate], places: Mapping[str, int]
    ) -> Snapshot:
        """The snapshot in which one backend's candidates are ``after`` (by model) where they were ``before``.

        ``places`` orders the backends. What did not change is shared between the two snapshots.
        """
        models = dict(self.models)
        for model in {**before, **after}:
            old, new = before.get(model), after.get(model)
            if old is new:
                continue
            row = _replaced(models.get(model, ()), old, new, places)
            if row:
                models[model] = row
            else:
                del models[model]
        return Snapshot(MappingProxyType(models))


def _replaced(
    row: tuple[Candidate, ...], old: Candidate | None, new: Candidate | None, places: Mapping[str, int]
) -> tuple[Candidate, ...]:
    backend = (old or new).backend  # type: ignore[union-attr]
    at = bisect_left(row, places[backend], key=lambda candidate: places[candidate.backend])
    after = row[at:] if old is None else row[at + 1 :]
    return row[:at] + after if new is None else (*row[:at], new, *after)
