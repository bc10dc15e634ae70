"""What models cost."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache, partial

from enginehouse.callers import PriceSettings

_MOST_KNOWN = 10_000


class Prices:
    """The prices of models. Names in ``[prices]`` may be patterns; the first that fits counts, if none is exact."""

    def __init__(self, settings: Mapping[str, PriceSettings]) -> None:
        self.of = lru_cache(_MOST_KNOWN)(partial(_price_of, settings))
        """The price of a model, if it has one."""


def _price_of(settings: Mapping[str, PriceSettings], model: str) -> PriceSettings | None:
    fitting = (price for name, price in settings.items() if fnmatchcase(model, name))
    return settings.get(model) or next(fitting, None)
