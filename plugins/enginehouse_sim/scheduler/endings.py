"""Which requests ended, and who has not been told yet."""

from __future__ import annotations

from enginehouse_sim.scheduler.output import EngineCoreOutput
from enginehouse_sim.scheduler.request import RequestState


class Endings:
    """For the model runner, with the next step; for each client, with the next outputs."""

    def __init__(self, include_finished_set: bool) -> None:
        self._for_runner: list[str] = []
        self._by_client: dict[int, list[str]] | None = {} if include_finished_set else None
        self._outputs: list[tuple[int, EngineCoreOutput]] = []

    def note(self, request: RequestState) -> None:
        """The request ended."""
        self._for_runner.append(request.request_id)
        if self._by_client is not None:
            self._by_client.setdefault(request.client_index, []).append(request.request_id)

    def owe(self, client_index: int, output: EngineCoreOutput) -> None:
        """A client has to be told of a request that ended outside any step."""
        self._outputs.append((client_index, output))

    @property
    def untold(self) -> bool:
        """Whether the model runner has not heard of some ending."""
        return bool(self._for_runner)

    def take_for_runner(self) -> tuple[str, ...]:
        """What ended since the last call, in order."""
        taken, self._for_runner = tuple(self._for_runner), []
        return taken

    def take_by_client(self) -> dict[int, list[str]]:
        """What ended of each client since the last call, in order; empty unless clients are to be told."""
        if not self._by_client:
            return {}
        taken, self._by_client = self._by_client, {}
        return taken

    def take_owed(self) -> list[tuple[int, EngineCoreOutput]]:
        """What clients are owed, in order."""
        taken, self._outputs = self._outputs, []
        return taken
