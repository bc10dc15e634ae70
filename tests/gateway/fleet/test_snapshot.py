from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Candidate, ReplicaState
from enginehouse.domain.replica import Snapshot
from enginehouse_kit.testing import candidate

PLACES = {f"b{n}": n for n in range(5)}


def offers(backend: str, *models: str) -> dict[str, Candidate]:
    return {model: candidate(backend, model) for model in models}


def test_an_unknown_model_has_no_candidates() -> None:
    assert Snapshot().candidates("nobody-has-this") == ()


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = Snapshot().replacing({}, offers("b0", "m"), PLACES)
    with pytest.raises(AttributeError):
        snapshot.models = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        snapshot.models["m"] = ()  # type: ignore[index]
    with pytest.raises(AttributeError):
        snapshot.candidates("m")[0].draining = True  # type: ignore[misc]
    assert isinstance(snapshot.candidates("m"), tuple)
    assert isinstance(snapshot.models, MappingProxyType)


def test_the_ready_models_of_a_backend() -> None:
    first = offers("b0", "m", "n") | {"cold": candidate("b0", "cold", state=ReplicaState.STOPPED)}
    snapshot = Snapshot().replacing({}, first, PLACES).replacing({}, offers("b1", "m", "cold"), PLACES)
    assert list(snapshot.ready_on("b0")) == ["m", "n"]
    assert list(snapshot.ready_on("gone")) == []


def test_an_older_snapshot_stays_as_it_was() -> None:
    before = offers("b0", "m", "n")
    old = Snapshot().replacing({}, before, PLACES)
    new = old.replacing(before, {}, PLACES)
    assert old.candidates("m") == (before["m"],)
    assert new.candidates("m") == ()
    assert "m" not in new.models


def test_what_did_not_change_is_shared() -> None:
    first, second = offers("b0", "m", "n"), offers("b1", "m")
    old = Snapshot().replacing({}, first, PLACES).replacing({}, second, PLACES)
    changed = {"m": candidate("b1", "m", draining=True)}
    new = old.replacing(second, changed, PLACES)
    assert new == old.exchanging(second["m"], changed["m"])
    assert new.candidates("n") is old.candidates("n")
    assert new.candidates("m")[0] is first["m"]
    assert new.candidates("m")[1] is changed["m"]


def test_candidates_stand_in_the_order_of_their_backends_whenever_they_came() -> None:
    snapshot = Snapshot()
    for backend in ("b3", "b0", "b4", "b1"):
        snapshot = snapshot.replacing({}, offers(backend, "m"), PLACES)
    assert [each.backend for each in snapshot.candidates("m")] == ["b0", "b1", "b3", "b4"]


@given(st.lists(st.tuples(st.sampled_from(sorted(PLACES)), st.frozensets(st.sampled_from("mno"))), max_size=20))
def test_a_snapshot_holds_what_each_backend_offered_last(changes: list[tuple[str, frozenset[str]]]) -> None:
    snapshot = Snapshot()
    last: dict[str, dict[str, Candidate]] = {backend: {} for backend in PLACES}
    for backend, models in changes:
        after = {model: last[backend].get(model) or candidate(backend, model) for model in models}
        snapshot = snapshot.replacing(last[backend], after, PLACES)
        last[backend] = after
    for model in "mno":
        assert snapshot.candidates(model) == tuple(last[b][model] for b in PLACES if model in last[b])
    assert all(snapshot.models.values())
