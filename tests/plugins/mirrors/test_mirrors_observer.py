"""What has a copy, and what becomes of its answer, without a gateway."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse import RequestRecord
from enginehouse.records import ReadContents, RequestContents
from enginehouse.settings import MirrorSettings
from enginehouse_kit.testing import FakeAsides, FakeFigures, FakeServiceGateway, create, request_record, requirements

CONTENTS = RequestContents(
    "/v1/completions",
    [(b"authorization", b"Bearer key"), (b"content-type", b"application/json"), (b"x-session-id", b"s")],
    b'{"model":"m"}',
)


class Mirroring:
    """The observer with a mirror from ``m`` to ``n``. ``read``: what the gateway calls."""

    def __init__(self) -> None:
        self.observer = create("observer", "mirrors")
        self.observer.use_figures(FakeFigures(self.observer.metrics))
        self.asides = FakeAsides()
        self.observer.use_aside(self.asides)
        self.mirrors = {"m": MirrorSettings(to="n")}
        self.read: ReadContents = self.configured()

    def configured(self) -> Any:
        gateway = FakeServiceGateway()
        gateway.tables["routing"] = type("Routing", (), {"mirrors": self.mirrors})
        return self.observer.with_contents(gateway)

    def ended(self, record: RequestRecord, **needs: Any) -> int:
        """How many copies are on their way after this request."""
        self.read(record, requirements("m", **needs), CONTENTS)
        return self.asides.live

    def row(self) -> Any:
        [row] = self.observer.status()["mirrors"]
        return row


@pytest.fixture
def mirroring() -> Mirroring:
    return Mirroring()


def test_a_copy_has_the_body_and_no_header_that_concerns_the_client(mirroring: Mirroring) -> None:
    assert mirroring.ended(request_record("m", id="r")) == 1
    [(model, copy, request_id)] = mirroring.asides.sent
    assert (model, request_id, copy.path, copy.body) == ("n", "r-mirror", CONTENTS.path, CONTENTS.body)
    assert copy.headers == [(b"content-type", b"application/json")]


def test_what_was_not_answered_or_stays_in_a_zone_has_no_copy(mirroring: Mirroring) -> None:
    assert mirroring.ended(request_record("m", outcome="client_left", status=499)) == 0
    assert mirroring.ended(request_record("m", sent=None)) == 0
    assert mirroring.ended(request_record("m"), zones=("private",)) == 0
    assert mirroring.ended(request_record("other")) == 0
    assert mirroring.ended(request_record("m", outcome="engine_error", status=500)) == 1


def test_copies_are_compared_by_status_and_time(mirroring: Mirroring) -> None:
    mirroring.ended(request_record("m", sent=100.25, first_byte=100.5, ended=102.25))
    mirroring.ended(request_record("m"))
    mirroring.asides.end(request_record("n", sent=110.0, first_byte=111.0, ended=114.0))
    mirroring.asides.end(request_record("n", status=503, outcome="engine_error"))
    mirroring.asides.has_room = False
    mirroring.ended(request_record("m"))
    assert mirroring.row() == {
        "model": "m",
        "to": "n",
        "share": 1.0,
        "same": 1,
        "differs": 1,
        "skipped": 1,
        "statuses": [{"real": 200, "mirror": 200, "requests": 1}, {"real": 200, "mirror": 503, "requests": 1}],
        "first_byte_ms": {"real": 250.0, "mirror": 1000.0},
        "duration_ms": {"real": 2000.0, "mirror": 4000.0},
    }


def test_a_mirror_that_a_reload_has_changed_gets_no_figures_of_the_one_before(mirroring: Mirroring) -> None:
    mirroring.ended(request_record("m"))
    mirroring.mirrors = {"m": MirrorSettings(to="other")}
    mirroring.configured()
    mirroring.asides.end(request_record("n"))
    assert (mirroring.row()["to"], mirroring.row()["same"]) == ("other", 0)
    mirroring.mirrors = {}
    assert mirroring.configured() is None
    assert mirroring.observer.status() == {"mirrors": []}
