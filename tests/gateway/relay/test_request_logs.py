"""Lines of the log that concern a request name it and its trace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from enginehouse import Observer
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.telemetry.logs import Redaction, TextLines
from tests.support.plugins import Install
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.waiting import until

TRACE = b"0af7651916cd43dd8448eb211c80319c"
HEADERS = (b"x-request-id: mine", b"traceparent: 00-%s-b7ad6b7169203331-01" % TRACE)
TELEMETRY = {"traces": "otlp", "sample_ratio": 0.0}
IDS = f"request_id=mine trace_id={TRACE.decode()}"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The warnings and errors that the gateway logs meanwhile."""
    found: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    handler, logger = Lines(logging.WARNING), logging.getLogger("enginehouse")
    handler.setFormatter(TextLines(Redaction()))
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


@pytest.fixture
def registry(install: Install) -> Registry:
    """With a strategy that decides once and then fails."""
    install(
        "only_first",
        """
        class OnlyFirst(Strategy):
            decided = False

            def pick(self, requirements, candidates):
                if self.decided:
                    raise ValueError("no")
                self.decided = True
                return candidates[0]


        @hookimpl
        def register_strategies(register):
            register("only_first", OnlyFirst)
        """,
        module="enginehouse_only_first",
    )
    return load_plugins(PluginSettings()).registry


def failing(event: str) -> Observer:
    """An observer that fails at one event. Each has a class of its own: one log line in 10 seconds is kept of each."""

    def fail(self: Observer, *facts: Any) -> None:
        raise ValueError("no")

    observer: Observer = type(f"Fails_{event}", (Observer,), {event: fail})()
    return observer


@pytest.mark.parametrize("event", ["routed", "finished"])
async def test_an_observer_that_fails_is_logged_with_the_request(
    house: OpenGateway, engine: StartEngine, lines: list[str], event: str
) -> None:
    gateway = await house(await engine(), telemetry=TELEMETRY)
    gateway.gateway.observers.add(failing(event))
    await gateway.ask(gateway.post(None, *HEADERS))
    await until(lambda: lines)  # the answer may be there before
    assert ["failed in fail" in line and IDS in line for line in lines] == [True]


async def test_a_decision_after_the_first_is_logged_with_the_request(
    house: OpenGateway, engine: StartEngine, lines: list[str]
) -> None:
    """It is made when the first engine has answered."""
    busy, served = await engine(), await engine()
    gateway = await house(busy, served, telemetry=TELEMETRY, routing={"strategy": "only_first"})
    busy.says(b"{}", 503)
    assert (await gateway.ask(gateway.post(None, *HEADERS))).status == 503
    assert ["failed with ValueError" in line and IDS in line for line in lines] == [True]
