"""Which paths the engines of a model serve themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from enginehouse.domain.replica import Candidate, Snapshot
from enginehouse.routing.models_to_try import ModelsToTry

OPENAI: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})
"""What every engine serves."""


class Endpoints:
    """The paths of ``backends``, as their drivers say, and of ``models``, whose declarations win.

    ``others``: the models that a name's alias and fallbacks lead to.
    """

    def __init__(
        self, backends: Mapping[str, Collection[str]], models: Mapping[str, Collection[str]], others: ModelsToTry
    ) -> None:
        self._backends = backends
        self._models = models
        self._others = others

    def native(self, path: str, model: str, snapshot: Snapshot) -> Sequence[str]:
        """The backends that may serve ``model``, if every replica there has ``path``; else none."""
        names = (model, *(each.model for each in self._others.of(model, snapshot)))
        candidates = [each for name in names for each in snapshot.candidates(name)]
        if all(self._has(path, each) for each in candidates):
            return [each.backend for each in candidates]
        return ()

    def knows(self, model: str, snapshot: Snapshot) -> bool:
        """Whether requests may name ``model``."""
        return self._others.knows(model) or bool(snapshot.candidates(model))

    def _has(self, path: str, candidate: Candidate) -> bool:
        declared = self._models.get(candidate.model)
        return path in OPENAI or path in (self._backends.get(candidate.backend, ()) if declared is None else declared)
