"""``enginehouse explain scale``: how many replicas of each model are wanted, and why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import click
import msgspec
from msgspec import Meta
from rich.console import Console
from rich.table import Table

from enginehouse.app.scaling.scaling import decide, make_scaler
from enginehouse.app.scaling.sizes import least, ranges
from enginehouse.cli.client import GatewayClient
from enginehouse.cli.explain.files import read_file
from enginehouse.cli.options import config_option
from enginehouse.cli.output import print_json, printable, warn
from enginehouse.config.embedded import load_config_or_embedded
from enginehouse.config.environment import GATEWAY_KEY, GATEWAY_URL
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError, GatewayError
from enginehouse.domain.scale_status import ScaleStatus
from enginehouse.interfaces.scalers import ModelLoad, ScaleView
from enginehouse.plugin_manager.discovery import load_plugins

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
@click.option("--url", envvar=GATEWAY_URL, help=f"The gateway. By default ${GATEWAY_URL}, else the configured one.")
@click.option("--key", envvar=GATEWAY_KEY, help=f"An admin key, if keys are set; else ${GATEWAY_KEY}.")
@click.option(
    "--state",
    metavar="STATE.json",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The assumed load, instead of that of a running gateway; - is stdin.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def scale(config: Path | None, url: str | None, key: str | None, state: Path | None, as_json: bool) -> None:
    """Show how many replicas of each model are wanted, and why.

    Of models with replicas = { min, max }.

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
        warn(f"{error}; so every model is taken to be idle")
        return _decided(config, _AssumedLoads())
    return client.read(body, _Explained)


def _read(text: bytes, file: str) -> _AssumedLoads:
    try:
        return msgspec.json.decode(text, type=_AssumedLoads)
    except msgspec.DecodeError as error:
        expected = '{"models": {"m": {"replicas": 1, "waiting": 9, "expected_wait_s": 3.5}}}'
        raise ConfigError(f"is not the load of models: {error}", file=file, remedy=f"write {expected}") from None


def _decided(file: Path | None, state: _AssumedLoads) -> _Explained:
    loaded = load_config_or_embedded(file, os.environ)
    for warning in loaded.warnings:
        warn(warning)
    view = _view(loaded.config, state)
    scaler, plugin = make_scaler(loaded.config, load_plugins(loaded.config.plugins).registry)
    decided = decide(scaler, plugin, view) if view.models else {}
    return _Explained(
        models=[
            ScaleStatus(model=each.model, replicas=each.replicas, wanted=found.wanted, why=found.why)
            for each in view.models
            for found in [decided[each.model]]
        ]
    )


def _view(config: Config, state: _AssumedLoads) -> ScaleView:
    found = ranges(config)
    for name in state.models:
        if name not in found:
            raise ConfigError(f"'{name}' has no replicas = {{ min, max }} in the configuration")
    return ScaleView(now=0.0, models=tuple(_load(config, state, name) for name in found))


def _load(config: Config, state: _AssumedLoads, name: str) -> ModelLoad:
    model, range = config.models[name], ranges(config)[name]
    given = state.models.get(name, _AssumedLoad(replicas=range.min))
    return ModelLoad(
        model=name,
        replicas=given.replicas,
        ready=given.replicas if given.ready is None else given.ready,
        least=least(model, range),
        most=range.max,
        slots=given.slots or model.concurrency,
        serving=given.serving,
        waiting=given.waiting,
        expected_wait_s=given.expected_wait_s,
        spare_s=given.spare_s,
        scale_up_wait=model.scale_up_wait,
        scale_down_idle=model.scale_down_idle,
    )


def _table(answer: _Explained) -> Table:
    table = Table("model", "replicas", "wanted", "why")
    for each in answer.models:
        table.add_row(printable(each.model), str(each.replicas), str(each.wanted), printable(each.why))
    return table
