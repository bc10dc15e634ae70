"""The models that the names in a matrix stand for."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse import ConfigError
from enginehouse.settings import did_you_mean
from enginehouse.tickets import HostFacts
from enginehouse_scheduling.matrix.parser import Name
from enginehouse_scheduling.matrix.source import Source
from enginehouse_scheduling.model_names import check_model, models_of


class Names:
    """The short names in ``vars``, at the configuration key ``key``, and the names of models. Short names win.

    Raises ``ConfigError`` for a short name of an unknown model.
    """

    def __init__(self, vars: Mapping[str, str], host: HostFacts, key: str) -> None:
        for name, model in vars.items():
            check_model(model, host, f"{key}.{name}")
        models = models_of(host)
        self._models = {**{model: model for model in models}, **vars}
        self._bits = {model: 1 << number for number, model in enumerate(models)}

    def bit(self, model: str) -> int:
        """The bit of a model."""
        return self._bits[model]

    def bit_at(self, name: Name, source: Source) -> int:
        """The bit of the model that a name in an expression stands for. Raises ``ConfigError`` for an unknown name."""
        if name.text not in self._models:
            raise source.error(f"unknown model or var '{name.text}'", name.span, self._remedy(name.text))
        return self._bits[self._models[name.text]]

    def costs(self, costs: Mapping[str, int], key: str) -> dict[str, int]:
        """``costs``, at the configuration key ``key``, by model. Raises ``ConfigError`` for an unknown name."""
        by_model: dict[str, int] = {}
        for name, cost in costs.items():
            where = f"{key}.{name}"
            if name not in self._models:
                raise ConfigError(f"unknown model or var '{name}'", key=where, remedy=self._remedy(name))
            model = self._models[name]
            if model in by_model:
                raise ConfigError(f"model '{model}' has a cost already", key=where, remedy="keep one of them")
            by_model[model] = cost
        return by_model

    def _remedy(self, name: str) -> str:
        return did_you_mean(name, list(self._models)) or f"known: {', '.join(self._models)}"
