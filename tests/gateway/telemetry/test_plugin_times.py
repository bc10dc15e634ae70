from __future__ import annotations

import pytest

from enginehouse.domain.plugin_id import PluginId
from enginehouse.telemetry import plugin_times
from enginehouse.telemetry.plugin_times import PluginTimes, SampledCall

PLUGIN = PluginId("filter", "vram", "acme")


class Plugin:
    """Takes ``seconds`` at every call, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.seconds = 0.001
        self.error: BaseException | None = None
        self.times = PluginTimes()
        self.sampled = SampledCall(PLUGIN, self.keep)
        monkeypatch.setattr(plugin_times, "perf_counter", lambda: self.now)

    def keep(self, answer: int) -> int:
        self.now += self.seconds
        if self.error is not None:
            raise self.error
        return answer

    def samples(self) -> tuple[int, object]:
        """How many samples there are, and their sum."""
        histogram = self.times.by_plugin[PLUGIN]
        return sum(histogram.counts), histogram.total

    def sample(self, *seconds: float) -> None:
        for self.seconds in seconds:
            self.times.sample([self.sampled])
            self.sampled.call(1)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Plugin:
    return Plugin(monkeypatch)


def test_an_unsampled_call_is_the_method_itself(plugin: Plugin) -> None:
    assert plugin.sampled.call == plugin.keep
    plugin.times.sample([plugin.sampled])
    plugin.sampled.call(1)
    assert plugin.sampled.call == plugin.keep


def test_only_the_next_call_is_measured(plugin: Plugin) -> None:
    plugin.times.sample([plugin.sampled])
    assert [plugin.sampled.call(n) for n in (1, 2, 3)] == [1, 2, 3]
    assert plugin.samples() == (1, pytest.approx(0.001))


def test_a_call_that_raises_is_measured_and_raises(plugin: Plugin) -> None:
    plugin.error = SystemExit(3)
    with pytest.raises(SystemExit):
        plugin.sample(0.002)
    assert plugin.samples() == (1, pytest.approx(0.002))
    assert plugin.sampled.call == plugin.keep


def test_two_slow_samples_in_a_row_are_told(plugin: Plugin, caplog: pytest.LogCaptureFixture) -> None:
    plugin.sample(0.2, 0.001, 0.2, 0.001)
    assert caplog.text == ""
    plugin.sample(0.2, 0.02)
    assert "The filter 'vram' of plugin 'acme' is slow: it blocks the event loop for 20 ms at a call" in caplog.text


def test_a_slow_plugin_is_told_once_a_minute(plugin: Plugin, caplog: pytest.LogCaptureFixture) -> None:
    plugin.sample(*[0.02] * 100)
    assert len(caplog.records) == 1
    assert plugin.samples()[0] == 100
