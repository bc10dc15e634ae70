"""What the gateway tells the service manager that started it (sd_notify(3), sd_watchdog_enabled(3))."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping

_log = logging.getLogger(__name__)

_SOCKET, _WATCHDOG_US, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


_LOOK_EVERY_S = 0.5


class ServiceManager:
    """Sends notices to ``NOTIFY_SOCKET``, and does nothing where there is none.

    The variables are taken out of ``environ``: engines must not answer in the gateway's name.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.pop(_SOCKET, "")
        self._watchdog_us = environ.pop(_WATCHDOG_US, "")
        mine = environ.pop(_WATCHDOG_PID, "") in ("", str(os.getpid()))
        self._watchdog_s = int(self._watchdog_us) / 2e6 if mine and self._watchdog_us.isdecimal() else 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment in which another process speaks for this service, once it is the main one."""
        given = {_SOCKET: self._address, _WATCHDOG_US: self._watchdog_us}
        return {name: value for name, value in given.items() if value}

    def ready(self, url: str, serves: Callable[[], bool] = lambda: True) -> None:
        """Tell that the gateway listens at ``url``, and from now on, while it ``serves``, that its event loop runs."""
        self._send(f"READY=1\nSTATUS=Listening on {url}")
        if self._watchdog_s and self._timer is None:
            self._feed_watchdog(serves)

    def reloading(self) -> None:
        """Tell that the configuration is being read again. ``ready`` follows."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Tell that the gateway drains and ends. The watchdog is still fed until ``close``."""
        self._send("STOPPING=1\nSTATUS=Finishing live requests")

    def replaced_by(self, pid: int) -> None:
        """Tell that the process ``pid`` is the service from now on; this one only drains."""
        self._send(f"MAINPID={pid}")
        self.close()

    def close(self) -> None:
        """Feed the watchdog no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._watchdog_s = 0.0

    def _feed_watchdog(self, serves: Callable[[], bool]) -> None:
        pause = self._watchdog_s
        if serves():
            self._send("WATCHDOG=1")
        else:
            pause = min(pause, _LOOK_EVERY_S)
        self._timer = asyncio.get_running_loop().call_later(pause, self._feed_watchdog, serves)

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
