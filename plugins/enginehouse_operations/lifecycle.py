"""``enginehouse load``, ``unload``, ``drain``, ``move`` and ``reload``: change what a running gateway serves with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from threading import Thread
from urllib.parse import quote

import click
import msgspec

from enginehouse import GatewayError
from enginehouse.commands import warn
from enginehouse.requests import escaped
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_answer, print_json
from enginehouse_operations import completion
from enginehouse_operations.options import Duration, answer_as_json

_LOAD_TIMEOUT_S = 3600.0
_LOOK_EVERY_S = 1.0
_REPEAT_AFTER_S = 10.0
_ASK_EVERY_S = 0.2
_STOP_TIMEOUT_S = 600.0
_RELOAD_TIMEOUT_S = 60.0


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
    print_answer(wait_for(post, lambda: _state(gateway, model)), as_json, f"{model} is ready")


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
    shown = b'{"model": null, "state": "stopped"}' if model is None else answer
    print_answer(shown, as_json, f"{model or 'Every model'} is unloaded")


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
            click.echo(escaped(f"{said}, after {now - began:.0f} s"), err=True)
    return answer.result()


def _run(ask: Callable[[], bytes], answer: Future[bytes]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:
        answer.set_exception(error)


class _Drained(msgspec.Struct):
    live: int


class _Placed(msgspec.Struct):
    replica: str
    backend: str


class _Replicas(msgspec.Struct):
    """The part of ``GET /api/status`` that tells the replicas of a backend."""

    replicas: list[_Placed]


class _Sent(msgspec.Struct):
    replica: str | None


class _Live(msgspec.Struct):
    """The part of ``GET /api/requests`` that tells where requests are."""

    requests: list[_Sent]


@click.command()
@gateway_options
@click.argument("backend", shell_complete=completion.backends)
@click.option(
    "--wait", type=Duration(), help="Wait until BACKEND has no live request, for at most this time, such as 30s."
)
@click.option("--stop", is_flag=True, help="Wait, without a limit by default, then stop the engine of BACKEND.")
@answer_as_json
def drain(gateway: GatewayClient, backend: str, wait: float | None, stop: bool, as_json: bool) -> None:
    """Send no new requests to BACKEND. Its live streams move to other backends of their model; the rest may finish.

    --stop needs a backend that the gateway launched. Its engine starts again only after undrain.
    """
    say = _say_nothing if as_json else click.echo
    begin = partial(gateway.post, "api", "backends", backend, "drain", query="?before_stop=true" if stop else "")
    answer = begin()
    say(f"{backend} gets no new requests")
    if wait is not None or stop:
        answer = _wait(gateway, backend, begin, answer, wait, say)
    if stop:
        answer = gateway.post("api", "backends", backend, "stop", timeout=_STOP_TIMEOUT_S)
        say(f"{backend} has stopped")
    if as_json:
        print_json(answer)


def _wait(
    gateway: GatewayClient,
    backend: str,
    drain: Callable[[], bytes],
    answer: bytes,
    wait: float | None,
    say: Callable[[str], None],
) -> bytes:
    """Ask until ``backend``, which ``drain`` drains, has no live request; the last answer."""
    end = math.inf if wait is None else time.monotonic() + wait
    shown, live = 0, gateway.read(answer, _Drained).live
    here: set[str] = set()
    while live:
        if time.monotonic() > end:
            raise GatewayError(f"{backend} still has {live} live requests after {wait:g} s; it stays drained")
        if live != shown:
            shown = live
            say(f"{backend} has {live} live {'request' if live == 1 else 'requests'}")
        time.sleep(_ASK_EVERY_S)
        here = here or _replicas_at(gateway, backend)
        if not (live := _live_at(gateway, here)):
            answer = drain()
            live = gateway.read(answer, _Drained).live
    say(f"{backend} has no live request")
    return answer


def _replicas_at(gateway: GatewayClient, backend: str) -> set[str]:
    placed = gateway.read(gateway.get("/api/status"), _Replicas).replicas
    return {each.replica for each in placed if each.backend == backend}


def _live_at(gateway: GatewayClient, replicas: set[str]) -> int:
    """How many live requests are there. To look is no act of an operator, and drains nothing again."""
    return sum(each.replica in replicas for each in gateway.read(gateway.get("/api/requests"), _Live).requests)


def _say_nothing(_: str) -> None:
    """Print nothing: the command prints only the last answer."""


@click.command()
@gateway_options
@click.argument("backend", shell_complete=completion.backends)
@answer_as_json
def undrain(gateway: GatewayClient, backend: str, as_json: bool) -> None:
    """Send requests to BACKEND again."""
    answer = gateway.post("api", "backends", backend, "undrain")
    print_answer(answer, as_json, f"{backend} gets requests again")


class _Moved(msgspec.Struct, rename={"source": "from"}):
    source: str
    gap_ms: float


@click.command()
@gateway_options
@click.argument("id", shell_complete=completion.requests)
@click.option("--to", "backend", required=True, help="The backend to move it to.", shell_complete=completion.backends)
@answer_as_json
def move(gateway: GatewayClient, id: str, backend: str, as_json: bool) -> None:
    """Continue a live stream at another backend.

    ID is the request's id. Its client notices only a short gap."""
    answer = gateway.post("api", "requests", id, "move", body={"to": backend})
    moved = gateway.read(answer, _Moved)
    waited = f"its client waited {moved.gap_ms:g} ms"
    print_answer(answer, as_json, f"{id} moved from {moved.source} to {backend}; {waited}")


@click.command()
@gateway_options
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
@click.option("--take-over", is_flag=True, help="Let a new gateway take over, for changes that need a restart.")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer.")
def reload(gateway: GatewayClient, dry_run: bool, take_over: bool, as_json: bool) -> None:
    """Make the gateway read its configuration again.

    What changed is printed.

    Requests continue, and so do the engines of unchanged models. An error in the configuration changes nothing. With
    --take-over, a new process takes over: it has the new program and all of the configuration.
    """
    from enginehouse.app.reload import Reloaded  # much that the help does not need

    flags = {"dry_run": dry_run, "take_over": take_over}
    query = "&".join(f"{name}=true" for name, wanted in flags.items() if wanted)
    answer = gateway.post("api", "reload", query=f"?{query}" if query else "", timeout=_RELOAD_TIMEOUT_S)
    if as_json:
        print_json(answer)
        return
    reloaded = gateway.read(answer, Reloaded)
    for warning in reloaded.warnings:
        warn(warning)
    lines = [*reloaded.changes.lines()]
    for line in lines:
        click.echo(line)
    if not lines and not reloaded.changes.needs_restart:
        click.echo("nothing to change" if dry_run else "nothing changed")
    if reloaded.taken_over_by is not None:
        click.echo(f"process {reloaded.taken_over_by} has taken over")
    elif reloaded.changes.needs_restart:
        warn(f"needs a restart: {', '.join(reloaded.changes.needs_restart)}")
