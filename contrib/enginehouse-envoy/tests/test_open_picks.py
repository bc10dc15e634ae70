"""Requests that wait for the access log to report their end."""

from __future__ import annotations

from typing import cast

from enginehouse_envoy.access_log import OpenPicks

from enginehouse.picking import Pick


class Kept:
    """A pick. ``has_ended``: it has ended by itself, because nobody reported its end in time."""

    def __init__(self) -> None:
        self.has_ended = False


def test_those_whose_end_is_never_reported_are_forgotten() -> None:
    picks = OpenPicks()
    picks.logs = 1
    lost = [Kept() for _ in range(10)]
    for each in lost:
        picks.keep(cast("Pick", each))
    for each in lost:
        each.has_ended = True
    for _ in lost:
        picks.keep(cast("Pick", Kept()))
    assert len(picks) == 10
