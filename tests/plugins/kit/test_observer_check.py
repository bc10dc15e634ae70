from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from enginehouse import Observer, RequestRecord, Requirements, Route
from enginehouse.records import Figures, ReadContents, RequestContents, SendAside
from enginehouse.services import Configured, MetricInfo
from enginehouse.tickets import SwapDone
from enginehouse_kit.testing import check_observer, request_record


class Late(Observer):
    async def queue_changed(self) -> None:  # type: ignore[override]
        """Never awaited."""


class Raises(Observer):
    def swap_done(self, done: SwapDone) -> None:
        assert done.error is None, "only good news"


class Writes(Observer):
    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        requirements.extra["seen"] = True


class Returns(Observer):
    def replicas_changed(self) -> Any:
        return 1


class Expects(Observer):
    def finished(self, record: RequestRecord) -> None:
        record.attempts[0].replica.index("@")


class Fails(Observer):
    def start(self) -> None:
        raise ValueError("no file")


class StopsLate(Observer):
    async def stop(self) -> None:
        raise ValueError("lost")


SEEN = MetricInfo("counter", "acme_seen", "Requests.", ("model",))


class Counts(Observer):
    """Counts in one metric, and shows that."""

    metrics: ClassVar[Sequence[MetricInfo]] = (SEEN,)
    labels: tuple[Any, ...] = ("m",)

    def use_figures(self, figures: Figures) -> None:
        self._figures = figures

    def finished(self, record: RequestRecord) -> None:
        self._figures.count(SEEN, self.labels)

    def status(self) -> Any:
        return {"acme": self._figures.measured(SEEN)}


class CountsAllInOne(Counts):
    labels = ()


class CountsNumbers(Counts):
    labels = (200,)


class CountsElsewhere(Counts):
    metrics = ()


class Gauges(Observer):
    metrics = (SEEN._replace(kind="gauge"),)


class Times(Counts):
    metrics = (SEEN._replace(kind="histogram"), SEEN)

    def queue_changed(self) -> None:
        self._figures.count(self.metrics[0], ("m",))


class ShowsAnObject(Counts):
    def status(self) -> Any:
        return {"acme": self}


class Judges(Observer):
    """Sends every request to a judge, who says nothing to those that failed."""

    asks = "judge"

    def use_aside(self, aside: SendAside) -> None:
        self._aside = aside

    def with_contents(self, configured: Configured) -> ReadContents | None:
        def judge(record: RequestRecord, requirements: Requirements, contents: RequestContents) -> Any:
            if self._aside(self.asks, contents, f"{record.id}-judge", self.judged):
                return self.answer(contents)
            return None

        return judge

    def judged(self, record: RequestRecord) -> None:
        """Does nothing."""

    def answer(self, contents: RequestContents) -> Any:
        """Returns nothing."""


class JudgesAndAnswers(Judges):
    def answer(self, contents: RequestContents) -> Any:
        return True


class JudgesWithoutKey(Judges):
    def answer(self, contents: RequestContents) -> Any:
        contents.headers.clear()


class ForgetsTheJudge(Judges):
    def judged(self, record: RequestRecord) -> None:
        raise LookupError(record.id)


class JudgesAgain(Observer):
    """Sends another request whenever one has ended, from its start on."""

    def use_aside(self, aside: SendAside) -> None:
        self._aside = aside

    def start(self) -> None:
        self._send(request_record("a"))

    def _send(self, record: RequestRecord) -> None:
        self._aside("judge", RequestContents("/v1/completions", [], b"{}"), record.id, self._send)


class JudgesLater(Observer):
    def with_contents(self, configured: Configured) -> Any:
        return "later"


class Queues(Observer):
    """Its queue is made by ``start``, and empty after ``stop``."""

    queue: asyncio.Queue[str]

    async def start(self) -> None:
        self.queue = asyncio.Queue()
        await asyncio.Event().wait()

    def finished(self, record: RequestRecord) -> None:
        self.queue.put_nowait(record.id)

    async def stop(self) -> None:
        assert not self.queue.empty()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("broken", "error", "rule"),
    [
        (Late, AssertionError, "queue_changed must return nothing, got <coroutine"),
        (Raises, AssertionError, "only good news"),
        (Writes, AssertionError, "routed must not change its arguments"),
        (Returns, AssertionError, "replicas_changed must return nothing, got 1"),
        (Fails, ValueError, "no file"),
        (StopsLate, ValueError, "lost"),
        (Expects, IndexError, "tuple index out of range"),
        (CountsAllInOne, AssertionError, "'acme_seen' needs texts for the labels"),
        (CountsNumbers, AssertionError, "'acme_seen' needs texts for the labels"),
        (CountsElsewhere, AssertionError, "'acme_seen' must be among the metrics of the class"),
        (Gauges, AssertionError, "'acme_seen' must be a counter or a histogram"),
        (Times, AssertionError, "'acme_seen' is a histogram, not a counter"),
        (JudgesAndAnswers, AssertionError, "what with_contents returns must return nothing, got True"),
        (JudgesWithoutKey, AssertionError, "what with_contents returns must not change its arguments"),
        (ForgetsTheJudge, LookupError, "request-1"),
        (JudgesLater, AssertionError, "with_contents must return what can be called, or None, got 'later'"),
        (ShowsAnObject, AssertionError, "status must be for JSON"),
    ],
)
def test_an_observer_that_breaks_a_rule_is_caught(broken: type[Observer], error: type[Exception], rule: str) -> None:
    with pytest.raises(error, match=rule):
        check_observer(broken)


def test_an_observer_that_keeps_the_rules_passes() -> None:
    check_observer(Observer)
    check_observer(Queues)
    check_observer(Counts)
    check_observer(Judges)
    check_observer(JudgesAgain)
