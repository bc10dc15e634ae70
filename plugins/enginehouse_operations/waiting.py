"""Waits for a slow answer of the gateway, such as for a load."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread

import click

from enginehouse import GatewayError

_LOOK_EVERY_S = 1.0
_REPEAT_AFTER_S = 10.0


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
