"""Whether this process serves clients, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class Serving:
    """``is_stopping``: whether the process was told to stop; it may be called in any thread, also while the loop hangs.

    ``None`` in a process that serves no clients, such as one of tests or simulations: nothing must watch it.
    """

    is_stopping: Callable[[], bool] | None = None


SERVING: Final = Serving()
