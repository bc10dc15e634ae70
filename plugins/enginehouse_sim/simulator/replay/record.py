"""What happened during a replay."""

from __future__ import annotations

from array import array

from enginehouse_sim.simulator.domain.outputs import SchedulerOutput
from enginehouse_sim.simulator.replay.trace import TraceRequest


class RequestRecord:
    """One request; times are seconds on the virtual clock."""

    __slots__ = ("arrival", "cached_tokens", "first_token", "input_length", "last_token", "output_tokens")

    def __init__(self, arrival: float, input_length: int) -> None:
        self.arrival = arrival
        self.input_length = input_length
        self.first_token: float | None = None
        self.last_token = arrival
        self.output_tokens = 0
        self.cached_tokens = 0

    def add_tokens(self, tokens: int, cached: int, now: float, record: Record) -> None:
        """The request got ``tokens`` at once; ``cached`` of its prompt were cached."""
        if self.first_token is None:
            self.first_token = now
            self.cached_tokens = cached
        else:
            record.gaps.append(now - self.last_token)
        self.last_token = now
        self.output_tokens += tokens


class Record:
    """All requests and steps.

    ``gaps``: seconds between two outputs of one request, for all requests. ``batches``, ``step_ends``, ``step_wall``:
    the requests, the virtual end and the real duration of each step. ``ended``: the virtual end of the replay.
    """

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []
        self.gaps = array("d")
        self.batches = array("L")
        self.step_ends = array("d")
        self.step_wall = array("d")
        self.preemptions = 0
        self.ended = 0.0

    def add_request(self, asked: TraceRequest) -> RequestRecord:
        request = RequestRecord(asked.arrival, asked.input_length)
        self.requests.append(request)
        return request

    def add_step(self, planned: SchedulerOutput, end: float, wall: float) -> None:
        self.batches.append(len(planned.num_scheduled_tokens))
        self.step_ends.append(end)
        self.step_wall.append(wall)
        self.preemptions += len(planned.preempted_req_ids)

    def times_to_first_token(self) -> list[float]:
        """In seconds, of every request with a first token."""
        return [each.first_token - each.arrival for each in self.requests if each.first_token is not None]
