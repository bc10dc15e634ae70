"""Tells the service manager that started the gateway what it does (sd_notify(3), sd_watchdog_enabled(3))."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from typing import ClassVar

from enginehouse import Observer
from enginehouse.runtime import SERVING

_log = logging.getLogger(__name__)

_SOCKET, _WATCHDOG_US, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_LOOK_EVERY_S = 0.5


class ServiceNotices(Observer):
    """Sends notices to ``NOTIFY_SOCKET``, and does nothing where there is none.

    The variables are taken out of the environment: engines must not answer in the gateway's name. They are the same for
    all instances of a process; only one of them serves.
    """

    _variables: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self._take()
        self._address = self._variables.get(_SOCKET, "")
        within, mine = self._variables.get(_WATCHDOG_US, ""), self._variables.get(_WATCHDOG_PID, "")
        is_mine = within.isdecimal() and mine in ("", str(os.getpid()))
        self._watchdog_s = int(within) / 2e6 if is_mine else 0.0
        self._timer: asyncio.TimerHandle | None = None

    def serving(self, state: str, detail: str) -> None:
        if state == "ready":
            self._send(f"READY=1\nSTATUS=Listening on {detail}")
            if self._watchdog_s and self._timer is None:
                self._feed_watchdog()
        elif state == "reloading":
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        elif state == "stopping":  # the watchdog is still fed
            self._send("STOPPING=1\nSTATUS=Finishing live requests")
        elif state == "replacing" and self._address:  # the new process speaks for this service, once it is the main one
            os.environ.update(self._variables)
            os.environ.pop(_WATCHDOG_PID, None)
            asyncio.get_running_loop().call_soon(self._take)
        elif state == "replaced":
            self._send(f"MAINPID={detail}")
            self.stop()

    def stop(self) -> None:
        """Feed the watchdog no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._watchdog_s = 0.0

    def _take(self) -> None:
        for name in (_SOCKET, _WATCHDOG_US, _WATCHDOG_PID):
            if name in os.environ:
                self._variables[name] = os.environ.pop(name)

    def _feed_watchdog(self) -> None:
        """Tell that the event loop runs, while somebody accepts connections."""
        pause = self._watchdog_s
        if SERVING.accepts():
            self._send("WATCHDOG=1")
        else:
            pause = min(pause, _LOOK_EVERY_S)
        self._timer = asyncio.get_running_loop().call_later(pause, self._feed_watchdog)

    def _send(self, notice: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(notice.encode(), address)
        except OSError as error:
            _log.warning("The service manager at %s did not accept '%s': %s", self._address, notice, error)
