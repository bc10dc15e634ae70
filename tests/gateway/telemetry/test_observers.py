from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from enginehouse import Observer
from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.config.schema import Config
from enginehouse.domain.plugin_id import PluginId
from enginehouse.errors import LoadFailed
from enginehouse.plugin_manager.registry import Registry
from enginehouse.records import RequestFacts
from enginehouse.services import Configured
from enginehouse.telemetry.observers import Observers, notify


class Ear(Observer):
    def __init__(self) -> None:
        self.heard: list[object] = []

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        self.heard.append(target)

    def queue_changed(self) -> None:
        self.heard.append("queue")


def test_only_who_listens_to_an_event_is_told_of_it() -> None:
    ear = Ear()
    observers = Observers([Observer(), ear])
    assert not observers.callbacks("swap_done")
    notify(observers.callbacks("swap_started"), "a@a", ())
    assert ear.heard == ["a@a"]


def test_observers_come_and_go_in_lists_that_were_asked_for_before() -> None:
    observers, ear, other = Observers(), Ear(), Ear()
    started, queue = observers.callbacks("swap_started"), observers.callbacks("queue_changed")
    assert not started
    observers.add(ear)
    observers.add(other)
    notify(started, "a@a", ())
    notify(queue)
    observers.remove(ear)
    notify(started, "b@b", ())
    assert (ear.heard, other.heard) == (["a@a", "queue"], ["a@a", "queue", "b@b"])
    observers.remove(other)
    assert not started
    assert not queue


def test_who_comes_before_a_list_is_asked_for_is_in_it() -> None:
    observers, ear = Observers(), Ear()
    observers.add(ear)
    notify(observers.callbacks("queue_changed"))
    assert ear.heard == ["queue"]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_an_observer_that_fails_is_logged_and_the_others_are_told(
    error: BaseException, caplog: pytest.LogCaptureFixture, every_failure: None
) -> None:
    class Broken(Observer):
        def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
            raise error

    ear = Ear()
    plugins = [PluginId("observer", "shift", "nightshift"), PluginId("observer", "ear", "ears")]
    notify(Observers([Broken(), ear], plugins).callbacks("swap_started"), "a@a", ())
    assert ear.heard == ["a@a"]
    assert "The observer 'shift' of plugin 'nightshift' failed in swap_started" in caplog.text
    assert "raise error" in caplog.text


async def test_an_observer_works_from_start_to_stop_and_one_that_fails_harms_no_other(
    caplog: pytest.LogCaptureFixture, every_failure: None
) -> None:
    class Webhook(Observer):
        def __init__(self) -> None:
            self.lived: list[str] = []

        async def start(self) -> None:
            self.lived.append("started")
            try:
                await asyncio.Event().wait()
            finally:
                self.lived.append("cancelled")

        async def stop(self) -> None:
            await asyncio.sleep(0)
            self.lived.append("stopped")

    class Broken(Observer):
        def start(self) -> None:
            raise SystemExit(3)

        async def stop(self) -> None:
            raise LoadFailed("no disk")

    webhook = Webhook()
    plugins = [PluginId("observer", "shift", "nightshift"), PluginId("observer", "hook", "hooks")]
    observers = Observers([Broken(), webhook], plugins)
    observers.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert webhook.lived == ["started"]
    await observers.stop()
    assert webhook.lived == ["started", "cancelled", "stopped"]
    assert caplog.text.count("The observer 'shift' of plugin 'nightshift' failed") == 2


class Counting(Observer):
    """Wants each request, unless it fails."""

    def __init__(self, fails: bool = False) -> None:
        self.ended: list[object] = []
        self._fails = fails

    def at_end(self, configured: Configured) -> Callable[[RequestFacts], None] | None:
        if self._fails:
            raise KeyError("fails")
        return self.ended.append


def test_who_wants_each_request_at_its_end_gets_it_whoever_else_fails(caplog: pytest.LogCaptureFixture) -> None:
    counting = Counting()
    observers = Observers([Observer(), Counting(fails=True), counting])
    calls = observers.wanted("at_end", ConfiguredPlugins(Config, Registry()))
    notify(calls, "a request")
    assert counting.ended == ["a request"]
    assert "failed in at_end" in caplog.text
    assert set(calls) <= set(observers.sampled)
