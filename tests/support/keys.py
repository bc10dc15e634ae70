"""Client keys in a configuration, and as clients send them."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from enginehouse.domain.plugin_id import PluginId
from enginehouse.http.admission import ActiveAuthenticator, Authentication
from enginehouse.interfaces.accounting import Accounting
from enginehouse.interfaces.authenticators import Authenticator
from enginehouse_callers import Callers
from enginehouse_callers.accounts import KeyHolder
from enginehouse_callers.keyring import Keyring
from tests.support.fake_clock import StoppedClock

if TYPE_CHECKING:
    from enginehouse.app import Gateway
    from enginehouse.processes.workers.worker import Worker


def key(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "key": f"{name}-secret", **more}


def bearer(name: str) -> bytes:
    return b"authorization: Bearer %s-secret" % name.encode()


class KnownKeys(Authenticator):
    """The keys of ``ring``."""

    def __init__(self, ring: Keyring) -> None:
        self.ring = ring

    def is_open(self) -> bool:
        return self.ring.is_open()

    def caller(self, head: list[tuple[bytes, bytes]]) -> KeyHolder | None:
        return self.ring.caller(head)

    def has_operators(self) -> bool:
        return self.ring.has_operator


def asking(
    ring: Keyring, *more: ActiveAuthenticator, accounting: Accounting | None = None, clock: StoppedClock | None = None
) -> Authentication:
    """What asks a keyring, and then other authenticators, who sends a request."""
    authentication = Authentication(accounting or Accounting(), clock or time)
    authentication.use([ActiveAuthenticator(PluginId("authenticator", "key"), KnownKeys(ring)), *more])
    return authentication


def callers_of(process: Gateway | Worker) -> Callers:
    """What knows the keys of a process, and counts its requests."""
    accounting = process.path.callers.accounting
    assert isinstance(accounting, Callers)
    return accounting
