"""What a gateway at rest must not have: the only part of the bench that knows the gateway's insides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from enginehouse.app.gateway import Gateway
from enginehouse.processes.workers.worker import Worker
from tests.support.keys import callers_of

_LOG = (256 + 8) * 1024


def held_of_answers(gateway: Gateway, workers: Iterable[Worker]) -> int:
    """The bytes that are held of engines' answers."""
    relays = [gateway.relay, *(worker.relay for worker in workers)]
    return sum(relay.context.engine_memory.held for relay in relays)


def leftovers(gateway: Gateway, workers: Iterable[Worker]) -> Iterator[str]:
    """Whatever is still counted, waiting or held although every request has ended."""
    processes: list[Gateway | Worker] = [gateway, *workers]
    for process in processes:
        for request in process.relay.live:
            yield f"live request {request.request_id!r} on {request.state().path}, {request.phase.value}"
        if undecided := len(process.relay.context.waiting_room):
            yield f"{undecided} requests wait for a model"
        if counted := process.relay.context.waiting_room.models:
            yield f"requests counted as waiting: {counted}"
        for name, queue in process.relay.context.queues.items():
            if backlog := queue.backlog.waiting:
                yield f"{backlog} counted as waiting at {name}"
        if held_bytes := process.admission.body_memory.held:
            yield f"{held_bytes} bytes of bodies held"
        if held_bytes := process.relay.context.engine_memory.held:
            yield f"{held_bytes} bytes of engines' answers held"
        for holder in callers_of(process).keyring._holders.values():
            if running := holder.account._own._running:
                yield f"{running} requests of key {holder.name}"
    for name in gateway.relay.context.upstreams:
        gateway.fleet.load(name).refresh()
        if pending := gateway.fleet.load(name).pending:
            yield f"{pending} pending at {name}"
    for host in {id(queue): queue for queue in gateway.engines.queues.values()}.values():
        for waiting in host.waiting():
            yield f"{waiting.ticket.id} waits at host {host.name}"
        if held := [*host._open]:
            yield f"host {host.name} holds {held}"
        for replica, count in host._granted.items():
            if count:
                yield f"{count} in flight at {replica}"
    for name, log in gateway.engines.logs().items():
        if (size := log._bytes + len(log._unfinished)) > _LOG:
            yield f"{size} bytes of the log of {name}"
