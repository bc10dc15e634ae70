"""``enginehouse load`` and ``unload``: load and unload models."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from threading import Thread
from urllib.parse import quote

import click
import msgspec

from enginehouse import GatewayError
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json
from enginehouse_operations import completion
from enginehouse_operations.options import answer_as_json

_LOAD_TIMEOUT_S = 3600.0
_LOOK_EVERY_S = 1.0
_REPEAT_AFTER_S = 10.0


class _StateOf(msgspec.Struct):
    value: str


class _ModelState(msgspec.Struct):
    """The part of ``GET /v1/models/{id}`` that the command shows while it waits."""

    status: _StateOf
    root: str = ""


class _ShownCondition(msgspec.Struct):
    word: str
    why: str | None = None
    progress: float | None = None


class _Shown(msgspec.Struct):
    model: str
    condition: _ShownCondition


class _Conditions(msgspec.Struct):
    """The part of ``GET /api/status`` that the command shows while it waits."""

    replicas: list[_Shown] = []


@click.command()
@gateway_options
@click.argument("model", shell_complete=completion.models)
@answer_as_json
def load(gateway: GatewayClient, model: str, as_json: bool) -> None:
    """Load MODEL and wait until it is ready. MODEL is a model that the gateway launches, or its alias."""
    post = partial(gateway.post, "api", "models", model, "load", timeout=_LOAD_TIMEOUT_S)
    answer = wait_for(post, lambda: _state(gateway, model))
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{model} is ready")


@click.command()
@gateway_options
@click.argument("model", required=False, shell_complete=completion.models)
@click.option("--force", is_flag=True, help="Cut off live requests instead of waiting for them.")
@answer_as_json
def unload(gateway: GatewayClient, model: str | None, force: bool, as_json: bool) -> None:
    """Unload MODEL, or all models.

    All models are those that the gateway launched. The command waits until their engines have stopped.

    Live requests may finish within server.drain_timeout; requests that wait for the model are refused.
    """
    _unload(gateway, model, force, as_json)


@click.command()
@gateway_options
@click.argument("model", shell_complete=completion.models)
@answer_as_json
def stop(gateway: GatewayClient, model: str, as_json: bool) -> None:
    """Unload MODEL, as `unload` does."""
    _unload(gateway, model, False, as_json)


def _unload(gateway: GatewayClient, model: str | None, force: bool, as_json: bool) -> None:
    path = ("unload",) if model is None else ("api", "models", model, "unload")
    post = partial(gateway.post, *path, query="?force=true" if force else "", timeout=_LOAD_TIMEOUT_S)
    answer = wait_for(post, lambda: "Engines are still running" if model is None else _state(gateway, model))
    if as_json:
        print_json(b'{"model": null, "state": "stopped"}' if model is None else answer)
    else:
        click.echo(f"{model or 'Every model'} is unloaded")


def _state(gateway: GatewayClient, model: str) -> str:
    listed = gateway.read(gateway.get(f"/v1/models/{quote(model, safe='')}"), _ModelState)
    shown = gateway.read(gateway.get("/api/status"), _Conditions).replicas
    found = next((each.condition for each in shown if each.model == listed.root), None)
    if found is None:
        return f"{model} is {listed.status.value}"
    if found.progress is not None:
        return f"{model} is {found.word}, about {found.progress:.0%}"
    return f"{model} is {found.word}" + (f": {found.why}" if found.why else "")


def wait_for(ask: Callable[[], bytes], look: Callable[[], str]) -> bytes:
    """Return the answer of ``ask``, which waits for it.

    Until then, print the text of ``look`` to standard error: when it has changed, and again after a while.
    """
    answer: Future[bytes] = Future()
    Thread(target=_run, args=(ask, answer), daemon=True).start()  # Ctrl-C does not wait for the answer
    began = told_at = time.monotonic()
    told = ""
    while not wait([answer], _LOOK_EVERY_S).done:
        now = time.monotonic()
        try:
            said = look()
        except GatewayError:  # the answer will say why
            continue
        if said != told or now - told_at >= _REPEAT_AFTER_S:
            told, told_at = said, now
            click.echo(f"{said}, after {now - began:.0f} s", err=True)
    return answer.result()


def _run(ask: Callable[[], bytes], answer: Future[bytes]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:
        answer.set_exception(error)
