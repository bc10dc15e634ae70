"""Whether this process serves clients, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class Serving:
    """``is_stopping``: whether the process was told to stop; it may be called in any thread, also while the loop hangs.

    ``None`` in a process that serves no clients, such as one of tests or simulations: nothing must watch it.
    ``accepts``: whether someone accepts connections, or none should be accepted any more.
    """

    is_stopping: Callable[[], bool] | None = None
    accepts: Callable[[], bool] = staticmethod(lambda: True)


SERVING: Final = Serving()
