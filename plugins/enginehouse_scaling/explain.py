"""``enginehouse explain scale``: how many replicas of each model are wanted, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import msgspec
from msgspec import Meta
from rich.console import Console
from rich.table import Table

from enginehouse import ConfigError, GatewayError
from enginehouse.backends import ModelSettings, ReplicaRange
from enginehouse.commands import config_option, warn
from enginehouse_kit.files import read_file
from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_kit.output import print_json, printable
from enginehouse_kit.scalers import ModelLoad, ScaleView
from enginehouse_scaling.decide import ScaleStatus, decide, make_scaler
from enginehouse_scaling.service import least, ranges

_NO_GATEWAY = ("No gateway can be reached", "server.port is 0")
"""How the errors begin after which the scaler decides here."""


class _AssumedLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model in STATE.json."""

    replicas: Annotated[int, Meta(ge=0)] = 0
    ready: Annotated[int, Meta(ge=0)] | None = None
    slots: Annotated[int, Meta(ge=0)] = 0
    serving: Annotated[int, Meta(ge=0)] = 0
    waiting: Annotated[int, Meta(ge=0)] = 0
    expected_wait_s: Annotated[float, Meta(ge=0)] = 0.0
    spare_s: Annotated[float, Meta(ge=0)] = 0.0


class _AssumedLoads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[str, _AssumedLoad] = {}


class _Explained(msgspec.Struct, frozen=True, kw_only=True):
    models: list[ScaleStatus]


@click.command()
@config_option
@click.option(
    "--url", envvar="ENGINEHOUSE_URL", help="The gateway. By default $ENGINEHOUSE_URL, else the configured one."
)
@click.option("--key", envvar="ENGINEHOUSE_KEY", help="An admin key, if keys are set; else $ENGINEHOUSE_KEY.")
@click.option(
    "--state",
    metavar="STATE.json",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The assumed load, instead of that of a running gateway; - is stdin.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def scale(config: Path | None, url: str | None, key: str | None, state: Path | None, as_json: bool) -> None:
    """Show how many replicas of each model are wanted, and why.

    It shows the models with replicas = { min, max }.

    Asks the running gateway. Without one, or with a state, the configured scaler decides here. STATE.json holds
    {"models": {"m": {"replicas": 1, "slots": 4, "serving": 4, "waiting": 9, "expected_wait_s": 3.5, "spare_s": 0}}};
    "ready" is as many as replicas by default, and models that it leaves out are idle with their fewest replicas.
    """
    answer = _asked(config, url, key) if state is None else _decided(config, _read(read_file(state), str(state)))
    if as_json:
        print_json(msgspec.json.encode(answer))
    else:
        Console().print(_table(answer))


def _asked(config: Path | None, url: str | None, key: str | None) -> _Explained:
    try:
        client = GatewayClient.of(config, url, key)
        body = client.get("/api/scale")
    except GatewayError as error:
        if url is not None or not str(error).startswith(_NO_GATEWAY):
            raise
        warn(f"{error}; so every model counts as idle")
        return _decided(config, _AssumedLoads())
    return client.read(body, _Explained)


def _read(text: bytes, file: str) -> _AssumedLoads:
    try:
        return msgspec.json.decode(text, type=_AssumedLoads)
    except msgspec.DecodeError as error:
        expected = '{"models": {"m": {"replicas": 1, "waiting": 9, "expected_wait_s": 3.5}}}'
        raise ConfigError(f"is not the load of models: {error}", file=file, remedy=f"write {expected}") from None


def _decided(file: Path | None, state: _AssumedLoads) -> _Explained:
    """What the configured scaler wants. Models without an assumed load are idle with their fewest replicas."""
    from enginehouse_offline.offline_gateway import OfflineGateway  # much that the help does not need

    configured = OfflineGateway(file)
    models = configured.table("models")
    found = ranges(models)
    for name in state.models:
        if name not in found:
            raise ConfigError(f"'{name}' has no replicas = {{ min, max }} in the configuration")
    loads = [_load(name, models[name], range, state.models.get(name)) for name, range in found.items()]
    decided = decide(*make_scaler(configured), ScaleView(now=0.0, models=tuple(loads))) if loads else {}
    return _Explained(
        models=[
            ScaleStatus(model=each.model, replicas=each.replicas, wanted=wanted.wanted, why=wanted.why)
            for each in loads
            for wanted in [decided[each.model]]
        ]
    )


def _load(name: str, model: ModelSettings, range: ReplicaRange, given: _AssumedLoad | None) -> ModelLoad:
    """The assumed load of a model. What the configuration says of it counts."""
    given = given or _AssumedLoad(replicas=range.min)
    ready = given.replicas if given.ready is None else given.ready
    return ModelLoad(
        model=name,
        **{**msgspec.structs.asdict(given), "ready": ready, "slots": given.slots or model.concurrency},
        least=least(model, range),
        most=range.max,
        scale_up_wait=model.scale_up_wait,
        scale_down_idle=model.scale_down_idle,
    )


def _table(answer: _Explained) -> Table:
    table = Table("model", "replicas", "wanted", "why")
    for each in answer.models:
        table.add_row(printable(each.model), str(each.replicas), str(each.wanted), printable(each.why))
    return table
