"""Which reports a client gets, and when."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from enginehouse.config.schema import Config
from enginehouse.tickets import Phase
from enginehouse_progress.observer import ProgressReports
from enginehouse_progress.report import Form, ProgressReport, form_for


class Stream:
    """A waiting stream, of which the test says how far it is."""

    id = "r-1"
    model = "m"

    def __init__(self, number: int = 1, path: str = "/v1/chat/completions") -> None:
        self.number = number
        self.path = path
        self.phase = Phase.QUEUED
        self.position = 2
        self.waited = 6.0
        self.reads = True
        self.got: list[bytes] = []

    @property
    def has_begun(self) -> bool:
        return bool(self.got)

    def write(self, piece: bytes) -> bool:
        if self.reads:
            self.got.append(piece)
        return self.reads


@pytest.mark.parametrize(
    ("path", "wanted", "form"),
    [
        ("/v1/chat/completions", "comments", "comments"),
        ("/v1/chat/completions", "reasoning", "reasoning"),
        ("/v1/completions", "reasoning", "comments"),
        ("/v1/chat/completions", None, None),
        ("/v1/messages", "comments", None),
    ],
)
def test_the_form_fits_the_endpoint(path: str, wanted: str | None, form: Form | None) -> None:
    assert form_for(path, wanted) == form


def test_a_report_comes_when_something_changed_and_every_five_seconds() -> None:
    stream, report = Stream(), ProgressReport("comments")
    for waited, position in ((6.0, 2), (7.0, 2), (8.0, 1), (12.9, 1), (13.0, 1)):
        stream.waited, stream.position = waited, position
        report.send(stream)
    assert stream.got == [b": queued, position %d, %d s\n\n" % each for each in ((2, 6), (1, 8), (1, 13))]


def test_a_stream_that_its_engine_has_is_not_begun_by_a_report_but_kept_alive() -> None:
    stream, report = Stream(), ProgressReport("comments")
    stream.phase = Phase.SERVING
    report.send(stream)
    assert stream.got == []
    stream.phase = Phase.LOADING
    report.send(stream)
    stream.phase, stream.waited = Phase.SERVING, 7.0
    report.send(stream)
    stream.waited = 11.0
    report.send(stream)
    assert stream.got == [b": loading, 6 s\n\n", b": serving, 11 s\n\n"]


def test_a_report_that_a_slow_client_cannot_have_comes_when_it_can() -> None:
    stream, report = Stream(), ProgressReport("comments")
    stream.reads = False
    report.send(stream)
    stream.reads, stream.waited = True, 6.5
    report.send(stream)
    assert stream.got == [b": queued, position 2, 6 s\n\n"]


def test_reasoning_is_a_chunk_of_the_chat() -> None:
    stream = Stream()
    ProgressReport("reasoning").send(stream)
    [piece] = stream.got
    chunk = msgspec.json.decode(piece.removeprefix(b"data: "))
    assert (chunk["id"], chunk["model"]) == ("chatcmpl-r-1", "m")
    assert chunk["choices"][0]["delta"] == {"reasoning_content": "m: queued, position 2, 6 s\n"}


class Tables:
    """A configuration, as plugins read it."""

    def __init__(self, config: dict[str, object]) -> None:
        self._config = msgspec.convert(config, Config)

    def table(self, name: str) -> object:
        return getattr(self._config, name)

    plugin: Callable[..., tuple[object, object]]


def test_only_streams_whose_models_want_it_get_reports_after_their_patience() -> None:
    scheduling = {"progress": "comments", "progress_patience": 5.0}
    report = ProgressReports().streams_wait(Tables({"scheduling": scheduling, "models": {"m": {}, "n": {}}}))  # type: ignore[arg-type]
    early, late, other = Stream(1), Stream(2), Stream(3)
    early.waited, other.model = 4.9, "unknown"
    assert report is not None
    report([early, late, other])
    assert [len(each.got) for each in (early, late, other)] == [0, 1, 0]
    report([early, late, other])
    assert [len(each.got) for each in (early, late, other)] == [0, 1, 0]


def test_without_a_form_nothing_is_asked_of_the_gateway() -> None:
    assert ProgressReports().streams_wait(Tables({"models": {"m": {}}})) is None  # type: ignore[arg-type]
