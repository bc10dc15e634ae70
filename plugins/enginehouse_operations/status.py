"""``enginehouse status``, ``ps`` and ``models``: the state of a gateway, and the models that it serves."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.table import Column, Table

from enginehouse import Health, ReplicaState
from enginehouse.requests import escaped
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json, print_table, printable
from enginehouse_operations.options import answer_as_json

_LOCAL_HOST = "local"
"""The host of models that name none."""
_IN_TROUBLE = (Health.UNKNOWN, Health.UNHEALTHY, ReplicaState.FAILED)


class _ShownBackend(msgspec.Struct):
    name: str
    driver: str
    state: ReplicaState
    health: Health
    last_error: str | None
    draining: bool
    models: list[str]
    pending: int
    avg_latency_ms: float


class _ShownGpu(msgspec.Struct):
    host: str
    gpu: int
    name: str
    total: int
    used: int
    free: int
    replicas: list[str]


class _ShownReplica(msgspec.Struct):
    model: str
    backend: str
    state: ReplicaState


class _ShownWorker(msgspec.Struct):
    pid: int
    requests: int
    config_version: int
    loop_busy: float


class StatusAnswer(msgspec.Struct):
    """The part of ``GET /api/status`` that is shown."""

    version: str
    strategy: str
    uptime_s: float
    requests: int
    backends: list[_ShownBackend]
    replicas: list[_ShownReplica] = []
    gpus: list[_ShownGpu] = []
    workers: list[_ShownWorker] = []


@click.command()
@gateway_options
@answer_as_json
def status(gateway: GatewayClient, as_json: bool) -> None:
    """Show a running gateway and each of its backends."""
    answer = gateway.get("/api/status")
    facts = gateway.read(answer, StatusAnswer)
    if as_json:
        print_json(answer)
        return
    click.echo(headline(facts))
    Console().print(backend_table(facts))
    if len(facts.workers) > 1:
        Console().print(worker_table(facts))
    if facts.gpus:
        Console().print(gpu_table(facts.gpus))
    for backend in facts.backends:
        if (condition := _condition(backend)) in _IN_TROUBLE and backend.last_error:
            click.echo(escaped(f"{backend.name} is {condition.value}: {backend.last_error}"))


def headline(status: StatusAnswer) -> str:
    """The gateway in one line."""
    return (
        f"Enginehouse {status.version}, up for {status.uptime_s:.0f} s, strategy {status.strategy}, "
        f"live requests: {status.requests}"
    )


def backend_table(status: StatusAnswer) -> Table:
    """A row for each backend. A server that loads models itself shows which ones it has not loaded."""
    table = Table(_name("backend"), "driver", "health", "pending", "latency", _name("models"))
    states = {(each.backend, each.model): each.state for each in status.replicas}
    for each in status.backends:
        health = _condition(each).value + (", draining" if each.draining else "")
        models = printable("\n".join(_shown(model, states.get((each.name, model)), each) for model in each.models))
        table.add_row(
            printable(each.name),
            printable(each.driver),
            health,
            str(each.pending),
            f"{each.avg_latency_ms:.0f} ms",
            models,
        )
    return table


def _name(heading: str) -> Column:
    """A column of names, whole in a narrow terminal too: commands take them as they are."""
    return Column(heading, overflow="fold")


def _shown(model: str, state: ReplicaState | None, backend: _ShownBackend) -> str:
    return model if state in (None, backend.state) else f"{model} ({state.value})"


def worker_table(status: StatusAnswer) -> Table:
    """A row for each process that relays requests."""
    table = Table("worker", "requests", "configuration", "busy")
    for each in status.workers:
        table.add_row(str(each.pid), str(each.requests), str(each.config_version), f"{each.loop_busy:.0%}")
    return table


def gpu_table(gpus: Sequence[_ShownGpu]) -> Table:
    """A row for each GPU."""
    table = Table("gpu", "name", "free", "used", "of", "engines")
    for each in gpus:
        sizes = [f"{size / 1024**3:.1f} GiB" for size in (each.free, each.used, each.total)]
        number = str(each.gpu) if each.host == _LOCAL_HOST else f"{each.host}: {each.gpu}"
        table.add_row(printable(number), printable(each.name), *sizes, printable("\n".join(each.replicas)))
    return table


def _condition(backend: _ShownBackend) -> Health | ReplicaState:
    """The health of an engine that can take requests, else its state."""
    return backend.health if backend.state is ReplicaState.READY else backend.state


# --- enginehouse ps


_AT_REST = ("stopped", "unreachable", "unknown")


class _ConditionWord(msgspec.Struct):
    word: str
    why: str | None = None


class _Loaded(msgspec.Struct):
    model: str
    backend: str
    host: str
    condition: _ConditionWord
    memory: int | None = None
    slots: int | None = None
    waiting: int = 0


class _LoadedAnswer(msgspec.Struct):
    """The part of ``GET /api/status`` that is shown."""

    replicas: list[_Loaded]


@click.command()
@gateway_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def ps(gateway: GatewayClient, as_json: bool) -> None:
    """Show the models that a gateway has loaded or is loading."""
    answer = gateway.get("/api/status")
    shown = [each for each in gateway.read(answer, _LoadedAnswer).replicas if each.condition.word not in _AT_REST]
    if as_json:
        print_json(msgspec.json.encode(shown))
        return
    rows = [
        (
            each.model,
            each.backend,
            each.host,
            f"{each.condition.word}: {each.condition.why}" if each.condition.why else each.condition.word,
            "" if each.memory is None else decimal(each.memory),
            "" if each.slots is None else str(each.slots),
            str(each.waiting),
        )
        for each in shown
    ]
    empty = "No model is loaded; the first request for one loads it."
    print_table(("model", "backend", "host", "state", "memory", "slots", "waiting"), rows, empty=empty)


# --- enginehouse models


class _ListedModel(msgspec.Struct):
    id: str
    root: str
    max_model_len: int | None = None
    quantization: str = ""


class _ModelsAnswer(msgspec.Struct):
    """The part of ``GET /v1/models`` that the table shows."""

    data: list[_ListedModel]


@click.command()
@gateway_options
@answer_as_json
def models(gateway: GatewayClient, as_json: bool) -> None:
    """List the models and aliases that clients can name."""
    answer = gateway.get("/v1/models")
    listed = gateway.read(answer, _ModelsAnswer)
    if as_json:
        print_json(answer)
        return
    quantised = any(model.quantization for model in listed.data)
    headings = ("model", "alias of", "context length", *(["quantization"] if quantised else []))
    rows = [
        (
            model.id,
            model.root if model.root != model.id else "",
            "" if model.max_model_len is None else str(model.max_model_len),
            *([model.quantization] if quantised else []),
        )
        for model in listed.data
    ]
    print_table(headings, rows)
