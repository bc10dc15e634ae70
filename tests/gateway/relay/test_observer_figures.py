"""An observer of a plugin counts in metrics of its own, whichever process it observes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from enginehouse import Exporter, Observer, PluginError, RequestRecord
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.records import Figures, Sampling, TelemetrySettings
from enginehouse.services import MetricInfo
from enginehouse.telemetry import metric_list
from enginehouse.telemetry.counters import Counters
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway

SEEN = MetricInfo("counter", "acme_seen", "Requests.", ("path", "status"))
TOOK = MetricInfo("histogram", "acme_took_seconds", "Their times.", ("path",))
ALL = MetricInfo("counter", "acme_all", "All requests.")


class Acme(Observer):
    metrics = (SEEN, TOOK, ALL)
    _figures: Figures

    def use_figures(self, figures: Figures) -> None:
        self._figures = figures
        figures.count(SEEN, ("/never", "200"), 0)

    def finished(self, record: RequestRecord) -> None:
        self._figures.count(ALL)
        self._figures.count(SEEN, (record.user or record.path, str(record.status)))
        self._figures.observe(TOOK, [record.user or record.path], record.ended - record.arrived)

    def status(self) -> Mapping[str, Any]:
        rows = sorted(self._figures.measured(SEEN))
        return {"acme": [*rows, *self._figures.measured(TOOK), *self._figures.measured(ALL)]}


class Silent(Observer):
    def status(self) -> Mapping[str, Any]:
        raise KeyError("nothing")


def with_observers(**factories: Any) -> Registry:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    registry.add([Registered(kind="observer", type=type, factory=made, **origin) for type, made in factories.items()])
    return registry


@pytest.fixture(scope="module")
def registry() -> Registry:
    return with_observers(silent=Silent, acme=Acme)


async def counted(gateway: ServedGateway, requests: int) -> list[Any]:
    """What the observer shows, once it has counted so many. Workers report once a second."""
    shown: list[Any] = [[[], 0, 0.0]]
    while shown[-1] != [[], requests, 0.0]:
        await asyncio.sleep(0.01)
        shown = msgspec.json.decode((await gateway.ask(gateway.get("/api/status"))).body).get("acme") or shown
    return shown


async def test_what_an_observer_counts_is_on_the_page_and_in_the_status(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine())
    for _ in range(4):
        assert (await gateway.ask()).status == 200
    seen, never, took, _ = await counted(gateway, 4)
    assert seen == [["/never", "200"], 0, 0.0]
    assert never == [["/v1/chat/completions", "200"], 4, 0.0]
    assert took[:2] == [["/v1/chat/completions"], 4]
    assert 0 < took[2] < 60
    page = (await gateway.ask(gateway.get("/metrics"))).body
    for line in (
        b"acme_all_total 4.0",
        b'acme_seen_total{path="/never",status="200"} 0.0',
        b'acme_seen_total{path="/v1/chat/completions",status="200"} 4.0',
        b'acme_took_seconds_count{path="/v1/chat/completions"} 4.0',
    ):
        assert line in page


async def test_series_above_the_most_count_as_others(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), telemetry={"max_series": 3})
    for number in range(7):
        assert (await gateway.ask(gateway.post(user=f"{number}"))).status == 200
    shown = await counted(gateway, 7)
    assert sum(row[1] for row in shown if len(row[0]) == 2) == 7
    assert [row[0] for row in shown].count(["other", "other"]) == 1
    assert [row[0] for row in shown].count(["other"]) == 1
    assert len(shown) <= 2 * (3 + 1) + 1


@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        (SEEN._replace(kind="gauge"), "acme_seen is a gauge"),
        ("acme_seen", "Error: "),
        (metric_list.REFUSED._replace(labels=()), "another metric has the name enginehouse_refused"),
    ],
)
def test_a_metric_that_cannot_be_counted_is_refused(metric: Any, problem: str) -> None:
    observer = type("Wrong", (Observer,), {"metrics": [metric]})
    with pytest.raises(PluginError, match=f"observer 'wrong' cannot be prepared:.*{problem}"):
        Gateway(Config(), with_observers(wrong=observer))


def test_two_observers_may_share_a_metric_but_not_a_name() -> None:
    class Another(Observer):
        metrics = (SEEN._replace(labels=("path",)),)

    Gateway(Config(), with_observers(acme=Acme, same=Acme))
    with pytest.raises(
        PluginError, match=r"observer 'another' cannot be prepared:.*another metric has the name acme_seen"
    ):
        Gateway(Config(), with_observers(acme=Acme, another=Another))


def test_a_long_label_is_cut_and_counts_as_one_series() -> None:
    counters = Counters(max_series=2)
    counters.lend(Acme())
    for number in (1, 2):
        counters.count(SEEN, ("/" + "x" * 1000, "200"), number)
    counters.count(SEEN, ("/one", "200"))
    [never, (long, number, _), others] = counters.measured(SEEN)
    assert (len(long[0].encode()), number) == (256, 3)
    assert (never[1], others[:2]) == (0, (("other", "other"), 1))


def test_a_label_is_a_text_for_prometheus_whatever_it_comes_from() -> None:
    counters = Counters()
    counters.lend(Acme())
    counters.count(SEEN, ("\udce9", "200"))
    assert counters.measured(SEEN)[1][0] == ("?", "200")


@pytest.mark.parametrize("labels", [("/v1/models",), (1, 2), (b"/v1/models", "200")])
def test_a_series_has_a_text_for_each_label(labels: Any) -> None:
    counters = Counters()
    counters.lend(Acme())
    with pytest.raises((ValueError, TypeError, AttributeError)):
        counters.count(SEEN, labels)
    assert counters.measured(SEEN) == [(("/never", "200"), 0, 0.0)]


async def test_a_status_replaces_nothing_of_the_gateway_s(house: OpenGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Silent, "status", lambda _: {"version": "mine", "backends": "mine", "own": 1})
    gateway = await house()
    shown = msgspec.json.decode((await gateway.ask(gateway.get("/api/status"))).body)
    assert shown["own"] == 1
    assert "mine" not in (shown["version"], shown["backends"])


async def test_an_exporter_has_its_figures_before_all_else() -> None:
    class Counts(Exporter):
        metrics = (ALL,)

        def use_figures(self, figures: Figures) -> None:
            self._figures = figures

        def sampling(self, settings: TelemetrySettings) -> Sampling | None:
            self._figures.count(ALL)
            return Sampling(1.0, follows_parent=True)

        def prepare(self, settings: TelemetrySettings, collect: Any, observe: Any) -> None: ...

        def start(self) -> None: ...

        def admits(self) -> bool:
            return True

        def add(self, request: Any) -> None: ...

        async def close(self) -> None: ...

    gateway = Gateway(Config(), with_observers(counts=Counts))
    assert gateway.relay.context.tracer is not None


@pytest.mark.parametrize("status", [{"odd": object()}, {"odd": {(1, 2): 3}}, {object(): 1}, {"odd": "\udce9"}, 5])
async def test_a_status_that_is_not_for_json_is_left_out(
    house: OpenGateway, monkeypatch: pytest.MonkeyPatch, status: Any
) -> None:
    monkeypatch.setattr(Silent, "status", lambda _: status)
    gateway = await house()
    shown = msgspec.json.decode((await gateway.ask(gateway.get("/api/status"))).body)
    assert "acme" in shown
    assert "odd" not in shown
