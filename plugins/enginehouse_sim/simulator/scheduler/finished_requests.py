"""Finished requests that have not been reported yet."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestState


class FinishedRequests:
    """Keeps finished requests until the model runner gets them with a step, and clients with the next outputs."""

    def __init__(self) -> None:
        self._for_runner: list[str] = []
        self._outputs: list[tuple[int, EngineCoreOutput]] = []

    def add(self, request: RequestState) -> None:
        self._for_runner.append(request.request_id)

    def add_output(self, client_index: int, output: EngineCoreOutput) -> None:
        """Keep the output of a request that finished outside of a step."""
        self._outputs.append((client_index, output))

    @property
    def has_unsent(self) -> bool:
        """Whether the model runner does not know yet that some request has finished."""
        return bool(self._for_runner)

    def take_for_runner(self) -> tuple[str, ...]:
        """The requests finished since the last call, in order."""
        taken, self._for_runner = tuple(self._for_runner), []
        return taken

    def take_outputs(self) -> list[tuple[int, EngineCoreOutput]]:
        taken, self._outputs = self._outputs, []
        return taken
