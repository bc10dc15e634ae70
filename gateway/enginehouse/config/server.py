"""The tables of the server itself: its address and limits, probes, and time limits; and how many workers serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from enginehouse.config.auth import LimitAmounts
from enginehouse.config.section import ByteSize, Duration, Period, Port, Positive, Section, about

Workers = Annotated[int, Meta(ge=1, le=256)] | Literal["auto"]
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class ServerSettings(Section, frozen=True):
    """The gateway's address, its limits and its shutdown."""

    host: Annotated[str, about("address to listen on")] = "127.0.0.1"
    port: Annotated[Port, about("0 picks a free port")] = 8080
    workers: Annotated[
        Workers, about('number of processes that relay requests; `"auto"`: as many as there are cores; 1: no others')
    ] = 1
    worker_timeout: Annotated[
        Duration, about("a worker whose event loop is blocked for this long is replaced; 0 for never")
    ] = 10
    max_body: Annotated[ByteSize, about("largest request body accepted")] = 32 * 1024**2
    max_body_memory: Annotated[
        ByteSize, about("most bytes of request bodies of all connections together; above it, 503; 0 for no limit")
    ] = 1024**3
    hold_answers: Annotated[
        ByteSize,
        about(
            "answers without a stream, up to this size, are delivered when they are whole: until then "
            "another engine can take over; 0 passes each on as it comes"
        ),
    ] = 1024**2
    max_engine_memory: Annotated[
        ByteSize,
        about(
            "most bytes of engines' answers in memory: those to the gateway's own questions, buffered and gathered "
            "ones, and what continues streams; what does not fit is dropped; 0 for no limit"
        ),
    ] = 1024**3
    drain_timeout: Annotated[Duration, about("time for live requests to finish when the gateway stops")] = 30
    drain_delay: Annotated[
        Duration, about("time in which a stopping gateway still accepts requests, while `/ready` answers 503")
    ] = 0
    name: Annotated[
        str, about("name of this gateway; it takes over the engines of a killed gateway of the same name")
    ] = "default"
    watch: Annotated[bool, about("reload this file when it changes")] = False
    allowed_hosts: Annotated[
        list[str],
        about(
            "while no keys are set: names in `Host` that operators' pages accept, besides those of "
            '`host` and of the loopback interface; `*` and `?` match as in a shell, `["*"]` for any'
        ),
    ] = []
    per_address: Annotated[LimitAmounts | None, about("limits of each client address, besides those of keys")] = None
    trusted_proxies: Annotated[
        list[str], about("addresses or networks of proxies whose `X-Forwarded-For` names the client")
    ] = []
    cors: Annotated[list[str], about('web origins whose pages may call the gateway; `["*"]` for any')] = []


class CheckSettings(Section, frozen=True):
    """Health probes. Live requests count as well."""

    interval: Annotated[Period, about("time between two probes of one backend")] = 5
    timeout: Annotated[Period, about("time limit of one probe")] = 5
    failures: Annotated[Positive, about("consecutive failures that make a backend unhealthy")] = 3
    successes: Annotated[Positive, about("consecutive successes that make it healthy again")] = 2
    hung: Annotated[
        Duration,
        about(
            "an engine none of whose requests gets anything for this long, and for five times what is usual, is given "
            "up; a launched one also if it answers no probe for this long and serves no request, or uses no processor "
            "time during `failures` late probes; `0` for never"
        ),
    ] = 60


class TimeoutSettings(Section, frozen=True):
    """The time limits for engines, and for clients that do not read. 0 means no limit.

    Those of a backend replace those of a model, which replace the common ones.
    """

    connect: Annotated[Duration, about("to connect")] = 5
    first_byte: Annotated[Duration, about("until the first byte of the answer")] = 600
    stall: Annotated[Duration, about("between two pieces of the answer")] = 120
    total: Annotated[Duration, about("for the whole answer")] = 0
    client: Annotated[
        Duration, about("time for which a client may leave an answer unread; then its request is cancelled")
    ] = 60


class StreamSettings(Section, frozen=True):
    """What clients get of streams besides their events."""

    heartbeat: Annotated[
        Duration,
        about(
            "silence after which a stream gets a comment, or the ping of its protocol, also while its request waits; "
            "0 for none"
        ),
    ] = 15


class WorkerCount(NamedTuple):
    """The number of workers, and for people the reason."""

    number: int
    why: str


def worker_count(server: ServerSettings, quota: Path = _QUOTA) -> WorkerCount:
    """How many workers ``server.workers`` asks for; ``auto``: as many as there are cores that the process may use."""
    if server.workers != "auto":
        return WorkerCount(server.workers, f"server.workers = {server.workers}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    why = f'server.workers = "auto", and the process may use {cores} core{"s" if cores > 1 else ""}'
    limit = _limit(quota)
    if limit is not None and limit < cores:
        return WorkerCount(limit, f"{why}, of which its control group allows the time of {limit}")
    return WorkerCount(cores, why)


def _limit(quota: Path) -> int | None:
    """The cores whose whole time the control group allows, at least 1; ``None`` without a limit."""
    try:
        allowed, period = quota.read_text().split()
        return max(1, int(allowed) // int(period))
    except (OSError, ValueError):
        return None
