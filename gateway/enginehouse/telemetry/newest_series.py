"""Series by names that come and go, such as those of found backends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any


class NewestSeries(defaultdict[Any, Any]):
    """Makes a series when it is first counted in. Of more than ``most``, the oldest is dropped."""

    def __init__(self, make: Callable[[], Any], most: int) -> None:
        super().__init__(make)
        self._most = most

    def __missing__(self, key: object) -> Any:
        if len(self) >= self._most:
            del self[next(iter(self))]
        return super().__missing__(key)
