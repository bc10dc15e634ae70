from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import Literal

import pytest

from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.telemetry.logs import GatewayLog, configure_logs
from tests.support.waiting import within

Configure = Callable[..., GatewayLog]


@pytest.fixture
def configure(restored_logs: None) -> Configure:
    """``configure_logs``, undone afterwards."""

    def configured(
        log_format: Literal["text", "json"] = "text", log_level: Literal["info", "warning"] = "info"
    ) -> GatewayLog:
        return configure_logs(TelemetrySettings(log_format=log_format, log_level=log_level))

    return configured


def test_what_goes_to_standard_error_is_kept_as_well(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    own = configure()
    logging.getLogger("x").info("hello %s", "there")
    logging.getLogger("x").debug("not this")
    lines = own.ring.tail(10)
    assert [line.partition(" INFO ")[2] for line in lines] == ["x: hello there"]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_log_for_machines_is_kept_as_such(configure: Configure) -> None:
    own = configure(log_format="json")
    logging.getLogger("x").info("hello")
    [line] = own.ring.tail(10)
    assert json.loads(line)["message"] == "hello"


def test_the_level_counts_for_what_is_kept_too(configure: Configure) -> None:
    own = configure(log_level="warning")
    logging.getLogger("x").info("hello")
    assert own.ring.tail(10) == []


async def test_lines_of_other_threads_come_in_on_the_event_loop(configure: Configure) -> None:
    own, more = configure(), asyncio.Event()
    own.open()
    own.ring.follow(more)
    await asyncio.to_thread(logging.getLogger("x").info, "from afar")
    await within(more.wait())
    logging.getLogger("x").info("from here")
    assert [line.partition(": ")[2] for line in own.ring.tail(10)] == ["from afar", "from here"]


def test_a_line_after_the_end_of_the_loop_is_still_printed(
    configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    own = configure()

    async def serve() -> None:
        own.open()

    asyncio.run(serve())
    logging.getLogger("x").info("goodbye")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(" INFO x: goodbye")


def test_no_text_of_a_client_looks_like_a_line_of_its_own(configure: Configure) -> None:
    own = configure()
    name = "ann\n2026-01-01 00:00:00,000 ERROR enginehouse: forged\r\x1b[2J\x9b1m\u202e"
    logging.getLogger("test").warning("user '%s'", name)
    try:
        raise ValueError(name)
    except ValueError:
        logging.getLogger("test").exception("failed")
    lines = own.ring.tail(100)
    heads = [line.split(" ", 4)[2:] for line in lines if not line.startswith(" ")]
    assert [head[:2] for head in heads] == [["WARNING", "test:"], ["ERROR", "test:"]]
    assert not re.search("[\x1b\r\x9b\u202e]", "\n".join(lines))
