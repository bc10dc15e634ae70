"""``enginehouse top``: a running gateway, watched and steered in a terminal."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from enginehouse import GatewayError
from enginehouse.requests import escaped
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json, printable
from enginehouse_operations.options import Duration
from enginehouse_operations.status import StatusAnswer, backend_table, headline, worker_table

_OTHER_LINES = 12
"""Lines of the screen that are no row of a table."""
_FEWEST_ROWS = 5
_MOST_BYTES = 1024
_MOVE_TIMEOUT_S = 60.0
HELP = "↑↓ select   s sort   r reverse   / filter   m move   c cancel   q quit"
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)
"""A key as terminals send it: what an arrow sends begins with an escape character."""
_UP, _DOWN = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j")
_ENTER, _ESCAPE, _ERASE, _LEAVE = ("\r", "\n"), "\x1b", ("\x7f", "\b"), ("q", "\x03", "\x04")
_COLUMNS = ("request", "model", "key", "phase", "replica", "age", "tokens", "moves")
_OPTIONAL = ("key", "moves")
_NAMES = ("model", "key", "replica")
_SHORTEST_ID = 8
_ORDERS: dict[str, Callable[[TopRequest], tuple[float | str, ...]]] = {
    "age": lambda each: (-each.age_ms,),
    "tokens": lambda each: (-(each.output_tokens or 0),),
    "model": lambda each: (each.model or each.path,),
    "phase": lambda each: (each.phase,),
    "replica": lambda each: (each.replica or "",),
}


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
    lines = Text(headline(status)), Text(escaped(view.line()), style="bold"), Text(escaped(view.heading()))
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


class TopRequest(msgspec.Struct):
    """The part of a live request that is shown."""

    id: str
    path: str
    model: str | None
    phase: str
    progress: str | None
    position: int | None
    replica: str | None
    moves: int
    output_tokens: int | None
    age_ms: float
    caller: str | None = None


class RequestAct(NamedTuple):
    """What the gateway is asked to do: ``cancel`` the request ``id``, or ``move`` it to ``backend``."""

    verb: str
    id: str
    backend: str = ""


class TopView:
    """The order, the filter and the selection, which keys change. It knows the requests of the last ``look``."""

    def __init__(self) -> None:
        self.said = ""
        self.ended = False
        self._order = "age"
        self._reversed = False
        self._filter = ""
        self._asked = ""
        self._typed = ""
        self._about = ""
        """The request that is asked about: the selection may move on meanwhile, since requests end."""
        self._selected = ""
        self._live: Sequence[TopRequest] = ()
        self._rows: list[TopRequest] = []
        self._backends: Sequence[str] = ()

    def look(self, live: Sequence[TopRequest], backends: Sequence[str]) -> None:
        """Take in what is live now, and where it may move to. The selection stays with its request."""
        self._live, self._backends = live, backends
        self._arrange()

    def press(self, keys: str) -> list[RequestAct]:
        """What pressed ``keys`` ask of the gateway."""
        acts = []
        for key in _KEY.findall(keys):
            if act := self._answer(key) if self._asked else self._steer(key):
                acts.append(act)
            self._arrange()
        return acts

    def line(self) -> str:
        """What the keys do, or what is asked."""
        if self._asked == "cancel":
            return f"Cancel {self._about}? y/n"
        if self._asked == "move":
            return f"Move {self._about} to which backend (Enter, Esc): {self._typed}_"
        if self._asked == "filter":
            return f"Only requests with (Enter, Esc): {self._typed}_"
        return self.said or HELP

    def heading(self) -> str:
        """How many requests there are, and how they are sorted and filtered."""
        only = f", only with '{self._filter}'" if self._filter else ""
        return f"Live requests: {len(self._rows)}, by {self._order}{', reversed' if self._reversed else ''}{only}"

    def table(self, most: int, width: int) -> Table:
        """At most ``most`` rows of ``width`` columns of the screen, around the selected one.

        Where there is little room, ids are cut; where that is not enough, names go on in the next line. Columns that
        are empty in all rows are left out.
        """
        first = max(0, min(self._place() - most // 2, len(self._rows) - most))
        rows = self._rows[first : first + most]
        cells = [_cells(each) for each in rows]
        shown = [n for n, name in enumerate(_COLUMNS) if name not in _OPTIONAL or any(row[n] for row in cells)]
        others = sum(1 + max(cell_len(_COLUMNS[n]), *(cell_len(row[n]) for row in cells)) for n in shown[1:] if cells)
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column(
            _COLUMNS[0], no_wrap=True, overflow="ellipsis", max_width=max(_SHORTEST_ID, width - 1 - others)
        )
        for n in shown[1:]:
            table.add_column(_COLUMNS[n], no_wrap=_COLUMNS[n] not in _NAMES, overflow="fold")
        for each, row in zip(rows, cells, strict=True):
            table.add_row(*(row[n] for n in shown), style="reverse" if each.id == self._selected else None)
        return table

    def _arrange(self) -> None:
        place = self._place()
        rows = [each for each in self._live if self._filter.lower() in _words(each)]
        self._rows = sorted(rows, key=_ORDERS[self._order], reverse=self._reversed)
        if rows and all(each.id != self._selected for each in rows):
            self._selected = self._rows[min(place, len(rows) - 1)].id

    def _place(self) -> int:
        return next((number for number, each in enumerate(self._rows) if each.id == self._selected), 0)

    def _steer(self, key: str) -> RequestAct | None:
        self.said = ""
        if key in _LEAVE:
            self.ended = True
        elif key == "s":
            orders = list(_ORDERS)
            self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        elif key == "r":
            self._reversed = not self._reversed
        elif key in (*_UP, *_DOWN) and self._rows:
            step = -1 if key in _UP else 1
            self._selected = self._rows[(self._place() + step) % len(self._rows)].id
        elif key == "/":
            self._asked, self._typed = "filter", self._filter
        elif key in ("m", "c"):
            self._asked, self._typed = ("move" if key == "m" else "cancel") if self._rows else "", ""
            self._about = self._selected
        return None

    def _answer(self, key: str) -> RequestAct | None:
        """A key while something is asked."""
        asked = self._asked
        if asked == "cancel":
            self._asked = ""
            return RequestAct("cancel", self._about) if key == "y" else None
        if key == _ESCAPE:
            self._asked = ""
            self._filter = "" if asked == "filter" else self._filter
        elif key in _ERASE:
            self._typed = self._typed[:-1]
        elif key in _ENTER:
            self._asked = ""
            if asked == "move":
                return self._move()
            self._filter = self._typed
        elif key.isprintable():
            self._typed += key
        return None

    def _move(self) -> RequestAct | None:
        """A move to the backend of that name, or to the only one whose name begins with it."""
        found = [name for name in self._backends if name.startswith(self._typed)]
        if self._typed in found:
            found = [self._typed]
        if len(found) == 1:
            return RequestAct("move", self._about, found[0])
        names = ", ".join(found or self._backends)
        self.said = f"{'No' if not found else 'More than one'} backend begins with '{self._typed}': {names}"
        return None


def _words(each: TopRequest) -> str:
    return " ".join((each.id, each.path, each.model or "", each.phase, each.replica or "", each.caller or "")).lower()


def _cells(each: TopRequest) -> Sequence[str]:
    more = each.progress or each.position
    return (
        printable(each.id),
        printable(each.model or each.path),
        printable(each.caller or ""),
        each.phase if more is None else printable(f"{each.phase} ({more})"),
        printable((each.replica or "").removeprefix(f"{each.model}@")),
        f"{each.age_ms / 1000:.1f} s",
        "" if each.output_tokens is None else str(each.output_tokens),
        str(each.moves or ""),
    )
