"""Finished requests that have not been reported yet."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestState


class FinishedRequests:
    """Reports to the model runner with the next step, and to each client with the next outputs."""

    def __init__(self, include_finished_set: bool) -> None:
        self._for_runner: list[str] = []
        self._by_client: dict[int, list[str]] | None = {} if include_finished_set else None
        self._outputs: list[tuple[int, EngineCoreOutput]] = []

    def add(self, request: RequestState) -> None:
        self._for_runner.append(request.request_id)
        if self._by_client is not None:
            self._by_client.setdefault(request.client_index, []).append(request.request_id)

    def add_output(self, client_index: int, output: EngineCoreOutput) -> None:
        """Keep the output of a request that finished outside of a step."""
        self._outputs.append((client_index, output))

    @property
    def has_unsent(self) -> bool:
        """Whether the model runner has not been told of some request."""
        return bool(self._for_runner)

    def take_for_runner(self) -> tuple[str, ...]:
        """The requests finished since the last call, in order."""
        taken, self._for_runner = tuple(self._for_runner), []
        return taken

    def take_by_client(self) -> dict[int, list[str]]:
        """The same by client; empty unless ``include_finished_set`` is on."""
        if not self._by_client:
            return {}
        taken, self._by_client = self._by_client, {}
        return taken

    def take_outputs(self) -> list[tuple[int, EngineCoreOutput]]:
        taken, self._outputs = self._outputs, []
        return taken
