"""The candidates of every model at one moment, for routing decisions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from enginehouse.domain.replica import Candidate, ReplicaState


class Snapshot:
    """The fleet at one moment. ``models``: every served model with its candidates, at least one each.

    ``unlisted``: the backends of which no models are known, because their engines have not listed any yet.

    A snapshot never changes, except for the load figures that its candidates share with the fleet.
    """

    __slots__ = ("_models", "_unlisted")

    def __init__(self, models: dict[str, tuple[Candidate, ...]] | None = None, unlisted: tuple[str, ...] = ()) -> None:
        self._models = models if models is not None else {}
        self._unlisted = unlisted

    @property
    def models(self) -> Mapping[str, tuple[Candidate, ...]]:
        return MappingProxyType(self._models)

    @property
    def unlisted(self) -> tuple[str, ...]:
        return self._unlisted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._models == other._models and self._unlisted == other._unlisted

    @staticmethod
    def of(offers: Iterable[Mapping[str, Candidate]], unlisted: tuple[str, ...] = ()) -> Snapshot:
        """Make a snapshot from the candidates of each backend, in the order of the backends."""
        models: dict[str, list[Candidate]] = {}
        for offered in offers:
            for model, candidate in offered.items():
                models.setdefault(model, []).append(candidate)
        return Snapshot({model: tuple(row) for model, row in models.items()}, unlisted)

    def candidates(self, model: str) -> tuple[Candidate, ...]:
        """The replicas that serve ``model``, healthy or not. Empty for an unknown model."""
        return self._models.get(model, ())

    def ready_on(self, backend: str) -> Iterator[str]:
        """The models that ``backend`` has ready."""
        for model, row in self.models.items():
            if any(each.backend == backend and each.state is ReplicaState.READY for each in row):
                yield model

    def replacing(
        self,
        before: Mapping[str, Candidate],
        after: Mapping[str, Candidate],
        places: Mapping[str, int],
        unlisted: tuple[str, ...] = (),
    ) -> Snapshot:
        """Replace the candidates ``before`` of one backend by those ``after``, both by model.

        ``places`` orders the backends. The two snapshots share the rows that did not change.
        """
        models = self._models.copy()
        for model in {**before, **after}:
            old, new = before.get(model), after.get(model)
            if old is new:
                continue
            row = _replaced(models.get(model, ()), old, new, places)
            if row:
                models[model] = row
            else:
                del models[model]
        return Snapshot(models, unlisted)


def _replaced(
    row: tuple[Candidate, ...], old: Candidate | None, new: Candidate | None, places: Mapping[str, int]
) -> tuple[Candidate, ...]:
    backend = (old or new).backend  # type: ignore[union-attr]
    at = bisect_left(row, places[backend], key=lambda candidate: places[candidate.backend])
    after = row[at:] if old is None else row[at + 1 :]
    return row[:at] + after if new is None else (*row[:at], new, *after)
