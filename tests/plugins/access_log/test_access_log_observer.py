"""When the access log is written, in which form, and between which lines of the gateway's own log."""

from __future__ import annotations

import json
import logging
from typing import Literal

import pytest

from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.telemetry.logs import configure_logs
from enginehouse_access_log.observer import AccessLogObserver
from enginehouse_kit.fake_service_gateway import FakeServiceGateway
from enginehouse_kit.testing import request_record
from tests.support.request_facts import facts_of

ENDED = facts_of(request_record("m", "a"))


def configured(access_log: bool | None = None, log_format: Literal["text", "json"] = "text") -> FakeServiceGateway:
    gateway = FakeServiceGateway()
    gateway.tables["telemetry"] = TelemetrySettings(access_log=access_log, log_format=log_format)
    return gateway


async def test_it_is_on_unless_the_configuration_says_no(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLogObserver()
    assert log.at_end(configured(access_log=False)) is None
    for wanted in (None, True):
        add = log.at_end(configured(access_log=wanted))
        assert add is not None
        add(ENDED)
    await log.stop()
    assert capfd.readouterr().err.count("enginehouse.access: POST") == 2


async def test_another_configuration_changes_the_form(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLogObserver()
    for form in ("text", "json"):
        add = log.at_end(configured(log_format=form))
        assert add is not None
        add(ENDED)
    await log.stop()
    first, second = capfd.readouterr().err.splitlines()
    assert " INFO enginehouse.access: " in first
    assert json.loads(second)["logger"] == "enginehouse.access"


async def test_lines_of_both_logs_stand_in_the_order_of_their_time(
    restored_logs: None, capfd: pytest.CaptureFixture[str]
) -> None:
    configure_logs(TelemetrySettings())
    log, other = AccessLogObserver(), logging.getLogger("x")
    add = log.at_end(configured())
    assert add is not None
    other.info("before")
    add(ENDED)
    other.info("between")
    log.at_end(configured())  # a reload
    add(ENDED)
    other.info("after")
    await log.stop()
    other.info("at the end")
    told = [line.partition(" INFO ")[2].partition(" ")[0] for line in capfd.readouterr().err.splitlines()]
    assert told == ["x:", "enginehouse.access:", "x:", "enginehouse.access:", "x:", "x:"]
