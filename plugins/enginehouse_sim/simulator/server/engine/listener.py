"""The interfaces between the engine and the listeners to its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from enginehouse import RequestError
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestStatus


class EngineFailed(RequestError):
    """The engine failed, and serves nothing until it is restarted."""


class RequestListener(Protocol):
    """Follows one request; times are seconds on the engine's clock."""

    def on_scheduled(self, now: float) -> None:
        """The first step of the request began."""

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        """A step made this output. It is the last one if it has a ``finish_reason``."""

    def on_error(self, error: RequestError) -> None:
        """The request failed; no output follows."""


class RequestLocation(Protocol):
    """Where a request runs: the engine here, or a migration that took it to another one."""

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Finish requests at once, and free their resources. No listener is called; unknown ids are ignored."""
