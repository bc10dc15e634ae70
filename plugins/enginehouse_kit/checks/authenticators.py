"""The conformance check of authenticators: heads without and with credentials, most of which nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from enginehouse import Authenticator, Headers, RequestError, Requirements
from enginehouse.callers import Accounting, AdmittedCaller, Caller, LimitAmounts
from enginehouse.errors import RateLimited
from enginehouse.runtime import Clock
from enginehouse_kit.expect import expect, warn_if_slow, within
from enginehouse_kit.fake_service_gateway import FakeServiceGateway

_STRANGE = (b"", b"x", b"a.b.c", b"..", b"\xff\xfe", b"Bearer", b"x" * 4096, b'{"alg":"none"}')
"""Credentials that nobody has given to anyone."""


def check_authenticator(factory: Callable[[], Authenticator]) -> None:
    """Check an authenticator against the rules of its interface. Raises ``AssertionError``.

    A request that shows nothing, or what nobody has given to anyone, has no caller: ``caller`` returns ``None`` or
    raises a ``RequestError``, whatever stands in the head. ``prepare`` says whether it is active. One that counts
    requests refuses the second of a caller that may send one in a minute.
    """
    it, gateway = factory(), FakeServiceGateway()
    if isinstance(it, Accounting):
        it.join(_OpenGateway())
    active: Any = it.prepare(gateway)
    expect(isinstance(active, bool), f"prepare must return whether it is active, got {active!r}")
    expect(it.prepare(gateway) is active, "prepare must say the same of the same configuration")
    expect(isinstance(it.has_operators(), bool), f"has_operators must return a bool, got {it.has_operators()!r}")
    limits: Any = it.limits_of("nobody")
    expect(limits is None or isinstance(limits, LimitAmounts), f"limits_of must return LimitAmounts, got {limits!r}")
    expect(isinstance(it.is_open(), bool), f"is_open must return a bool, got {it.is_open()!r}")
    expect(it.named("nobody") is None, f"nobody is called so, so named must not return {it.named('nobody')!r}")
    asyncio.run(within(10.0, "refresh", it.refresh()))
    if isinstance(it, Accounting):
        _check_counts(it)
    for head in _heads():
        found = _caller(it, head)
        expect(found is None, f"nobody has the credential in {head}, so caller must not return {found!r}")
    warn_if_slow("caller", lambda: _caller(it, [(b"authorization", b"Bearer x")]))


class _OpenGateway:
    """A gateway of one process, which nobody uses. A ``CountedGateway``."""

    clock = Clock()
    authenticators = ()
    memory = None
    process = 0

    def is_open(self) -> bool:
        return True

    def has_operators(self) -> bool:
        return True

    def limits_of(self, name: str) -> None:
        return None

    def count(self, meter: object, addresses: object, *, ask_streams: bool) -> None: ...


def _check_counts(it: Accounting) -> None:
    limits = LimitAmounts(requests_per_minute=1)
    counted: Any = it.counted("check/ann", Caller("ann", models=("m",), limits=limits))
    expect(isinstance(counted, AdmittedCaller), f"counted must return an AdmittedCaller, got {counted!r}")
    expect(counted.name == "check/ann", f"counted must keep the name 'check/ann', got {counted.name!r}")
    expect(not counted.may_use("n"), "counted must keep the models of a caller")
    needs, refused = Requirements(model="m"), False
    counted.admit(needs, 1)
    try:
        counted.admit(needs, 1)
    except RateLimited:
        refused = True
    expect(refused, "the second request in a minute must be refused with RateLimited, as the caller may send one")


def _heads() -> list[Headers]:
    empty: list[Headers] = [[], [(b"host", b"gateway"), (b"content-type", b"application/json")]]
    names = [(b"authorization", b"Bearer "), (b"x-api-key", b""), (b"api-key", b""), (b"cookie", b"session=")]
    shown: list[Headers] = [[(name, before + each)] for name, before in names for each in _STRANGE]
    return [*empty, *shown, [(name, before + b"x") for name, before in names]]


def _caller(it: Authenticator, head: Headers) -> Caller | None:
    before = list(head)
    try:
        found: Any = it.caller(head)
    except RequestError:
        return None
    expect(head == before, "caller must not change the head")
    expect(found is None or isinstance(found, Caller), f"caller must return a Caller or None, got {found!r}")
    checked: Caller | None = found
    return checked
