"""A plugin that blocks the event loop is named, and cannot keep the gateway from ending."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enginehouse_service import loop_watch
from enginehouse_service.loop_watch import LoopMonitor, LoopWatchdog, installed_plugins

ACME = "'acme' (enginehouse-acme 1.2.3)"
NOW = 1000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still."""
    monkeypatch.setattr(loop_watch, "monotonic", lambda: NOW)


class Stage:
    def __init__(self) -> None:
        self.monitor = LoopMonitor()
        self.stopping = False
        self.left: list[int] = []
        self.slow: list[str] = []
        self.watchdog = LoopWatchdog(
            self.monitor,
            lambda: {"enginehouse_acme": ACME},
            self.slow.append,
            stopping=lambda: self.stopping,
            drain_timeout=lambda: 1.0,
            leave=self.left.append,
        )

    def look(self, held: float, *, in_plugin: bool = True) -> None:
        """Look at a loop that has been held for ``held`` seconds."""
        self.monitor.turned = NOW - held
        scope: dict[str, Any] = {"__name__": "enginehouse_acme.filters" if in_plugin else "json"}
        exec("def call(look): look()", scope)
        scope["call"](self.watchdog.look)


def test_a_slow_plugin_is_named_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.look(0.3)
    assert f"The plugin {ACME} has blocked the event loop for more than" in caplog.text
    stage.look(0.4)
    assert stage.slow == [ACME, ACME]
    assert len(caplog.records) == 1


def test_the_time_that_a_plugin_took_is_told_when_the_loop_turns_again(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.look(3.0)
    stage.monitor.turned += 3.1  # the next turn, a tenth of a second after the plugin
    stage.watchdog.look()
    stage.watchdog.look()
    assert [record.getMessage() for record in caplog.records][1:] == [
        f"The plugin {ACME} blocked the event loop for 3.0 s"
    ]


@pytest.mark.parametrize(("held", "in_plugin"), [(0.1, True), (1.0, False)])
def test_a_loop_that_turns_and_a_loop_without_a_plugin_are_not_told(
    caplog: pytest.LogCaptureFixture, held: float, in_plugin: bool
) -> None:
    stage = Stage()
    stage.look(held, in_plugin=in_plugin)
    assert not caplog.records
    assert not stage.slow


def test_the_plugin_of_the_command_that_runs_the_loop_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def held() -> None:
        stage.look(0.3, in_plugin=False)

    scope: dict[str, Any] = {"__name__": "enginehouse_acme.command", "asyncio": asyncio}
    exec("def serve(work): asyncio.run(work)", scope)
    scope["serve"](held())
    assert not caplog.records
    assert not stage.slow


def test_a_stuck_loop_is_told_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    Stage().look(6.0)
    assert f"The event loop has been blocked for 6 s by {ACME}" in caplog.text
    assert "in look" in caplog.text


def test_a_stuck_gateway_that_was_told_to_stop_ends(capfd: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.look(60.0)
    stage.stopping = True
    stage.look(60.0)
    assert stage.left == []
    stage.watchdog._stopping_since = NOW - 2
    stage.look(0.5)
    assert stage.left == []
    stage.look(60.0)
    assert stage.left == [1]
    assert f"blocked by {ACME} and cannot stop" in capfd.readouterr().err


def test_the_monitor_notes_each_turn_of_the_loop() -> None:
    monitor = LoopMonitor()
    monitor.turned = NOW - 1
    assert monitor.turn() == pytest.approx(0.9)
    assert monitor.held() == 0.0


def test_plugins_are_named_with_their_distribution() -> None:
    assert installed_plugins()["enginehouse_service"].startswith("'service' (enginehouse ")


def test_the_watchdog_ends_when_it_is_told_to() -> None:
    watchdog = Stage().watchdog
    watchdog.start()
    watchdog.end()
    watchdog.join(10)
    assert not watchdog.is_alive()
