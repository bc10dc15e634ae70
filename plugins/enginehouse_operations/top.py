"""``enginehouse top``: a running gateway, watched and steered in a terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click
import msgspec
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from enginehouse import GatewayError
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json
from enginehouse_operations.options import Duration
from enginehouse_operations.status import StatusAnswer, backend_table, headline, worker_table
from enginehouse_operations.top_view import RequestAct, TopRequest, TopView

_OTHER_LINES = 12
"""Lines of the screen that are no row of a table."""
_FEWEST_ROWS = 5
_MOST_BYTES = 1024
_MOVE_TIMEOUT_S = 60.0


class _RequestsAnswer(msgspec.Struct):
    """The part of ``GET /api/requests`` that the table shows."""

    requests: list[TopRequest]


@click.command()
@gateway_options
@click.option("--interval", type=Duration(), default="1s", show_default=True, help="Time between two updates.")
@click.option("--json", "as_json", is_flag=True, help="Print the current state as a JSON object, and exit.")
def top(gateway: GatewayClient, interval: float, as_json: bool) -> None:
    """Watch backends, workers and live requests until q or Ctrl-C.

    Keys sort and filter the requests, and move or cancel the selected one. The screen lists the keys.
    """
    if as_json:
        print_json(_as_json(gateway))
        return
    view = TopView()
    first = _look(gateway, view, Console().size)
    with _pressed_keys() as wait, Live(first, screen=True, auto_refresh=False) as screen, suppress(KeyboardInterrupt):
        while not view.ended:
            screen.update(_look(gateway, view, screen.console.size), refresh=True)
            for act in view.press(wait(interval)):
                view.said = _done(gateway, act)


def _as_json(gateway: GatewayClient) -> bytes:
    status, requests = msgspec.Raw(gateway.get("/api/status")), gateway.get("/api/requests")
    live = gateway.read(requests, dict[str, msgspec.Raw])["requests"]
    return msgspec.json.encode({"status": status, "requests": live})


def _look(gateway: GatewayClient, view: TopView, size: ConsoleDimensions) -> Group:
    """A screen of that ``size``."""
    status = gateway.read(gateway.get("/api/status"), StatusAnswer)
    backends = [each.name for each in status.backends]
    view.look(gateway.read(gateway.get("/api/requests"), _RequestsAnswer).requests, backends)
    most = max(_FEWEST_ROWS, size.height - _OTHER_LINES - len(backends) - len(status.workers))
    lines = Text(headline(status)), Text(view.line(), style="bold"), Text(view.heading())
    return Group(*lines, view.table(most, size.width), backend_table(status), worker_table(status))


def _done(gateway: GatewayClient, act: RequestAct) -> str:
    """Do it, and say what came of it."""
    try:
        if act.verb == "cancel":
            gateway.delete("api", "requests", act.id)
            return f"{act.id} is cancelled"
        gateway.post("api", "requests", act.id, "move", body={"to": act.backend}, timeout=_MOVE_TIMEOUT_S)
        return f"{act.id} has moved to {act.backend}"
    except GatewayError as error:
        return str(error)


def _no_keys(timeout: float) -> str:
    time.sleep(timeout)
    return ""


@contextmanager
def _pressed_keys() -> Iterator[Callable[[float], str]]:
    """Yields what waits that long, in s, and returns the keys pressed meanwhile; without a terminal, none are."""
    if not sys.stdin.isatty():
        yield _no_keys
        return
    import termios  # not everywhere
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)  # keys come at once and are not echoed; Ctrl-C still interrupts

    def wait(timeout: float) -> str:
        readable, _, _ = select.select([terminal], [], [], timeout)
        return (os.read(terminal, _MOST_BYTES).decode(errors="replace") or "q") if readable else ""

    try:
        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
