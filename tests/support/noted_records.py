"""An observer that keeps the records of requests."""

from __future__ import annotations

from enginehouse import Observer, RequestRecord
from tests.support.served_gateway import ServedGateway
from tests.support.waiting import until


class NotedRecords(Observer):
    """The records of the requests of a gateway that have ended."""

    def __init__(self, gateway: ServedGateway) -> None:
        self.records: list[RequestRecord] = []
        gateway.gateway.observers.add(self)

    def finished(self, record: RequestRecord) -> None:
        self.records.append(record)

    async def only(self) -> RequestRecord:
        """The record of the only request, once it is there."""
        await until(lambda: self.records)
        (record,) = self.records
        return record


def attempts(record: RequestRecord) -> list[tuple[str, str]]:
    """The backend and the outcome of each attempt."""
    return [(each.backend, each.outcome) for each in record.attempts]


def times_in_order(record: RequestRecord) -> bool:
    """Whether the steps that were reached followed each other."""
    steps = (record.arrived, record.routed, record.granted, record.sent, record.first_byte, record.ended)
    times = [step for step in steps if step is not None]
    return times == sorted(times)
