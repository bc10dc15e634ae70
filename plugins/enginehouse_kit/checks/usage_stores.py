"""The conformance check of usage stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from enginehouse.callers import AuditEntry, UsageRow
from enginehouse_kit.expect import expect
from enginehouse_kit.usage_stores import UsageStore

_HOUR_S = 3600


def check_usage_store(factory: Callable[[], UsageStore]) -> None:
    """Check that sums add up, in any thread, are there in a second store of the same folder, and are forgotten.

    The store must be empty.
    """
    with TemporaryDirectory() as folder:
        _check(factory, Path(folder) / "state")


def _check(factory: Callable[[], UsageStore], folder: Path) -> None:
    hour = int(time.time()) // _HOUR_S * _HOUR_S
    entry = AuditEntry(time.time(), "ops", "127.0.0.1", "POST /api/reload", 200, "done")
    store = factory()
    store.prepare(folder)
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(store.add, [_row(hour, "alice"), _row(hour, "bob")], [entry]).result()
    store.add([_row(hour, "alice"), _row(hour - _HOUR_S, "alice")], [])
    _expect_sums(
        store.usage(hour - _HOUR_S, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1, (hour - _HOUR_S, "alice"): 1}
    )
    _expect_sums(store.usage(hour, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1})
    _expect_sums(store.sums(hour, hour + 1, ("hour", "key")), {(hour, "alice"): 2, (hour, "bob"): 1}, None, None)
    _expect_sums(store.sums(hour, hour + 1, ("hour", "key"), "bob"), {(hour, "bob"): 1}, None, None)
    expect(
        len(store.sums(hour, hour + 1, ("key",), None, 1)) == 1, "sums must return no more rows than it is asked for"
    )
    expect(list(store.audit(0, 10)) == [entry], f"audit must return the entries, got {store.audit(0, 10)!r}")
    expect(not store.audit(entry.time + 1, 10), "audit must not return older entries than it is asked for")
    store.close()
    again = factory()
    again.prepare(folder)
    _expect_sums(again.usage(hour, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1})
    again.forget(hour)
    _expect_sums(again.usage(0, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1})
    again.forget(time.time() + 1)
    expect(not again.usage(0, hour + 1) and not again.audit(0, 10), "forget must drop everything that is older")
    again.close()


def _row(hour: int, key: str) -> UsageRow:
    return UsageRow(hour, key, "m", "", 1, 0, 10, 4, 5, 0.5, 0.25, 0.125)


def _expect_sums(
    rows: Sequence[UsageRow], times: dict[tuple[int, str], int], model: str | None = "m", user: str | None = ""
) -> None:
    found = {(row.hour, row.key): row for row in rows}
    expect(
        found.keys() == times.keys(),
        f"there must be one sum for each of {sorted(times)}, got {sorted(map(str, found))}",
    )
    for names, number in times.items():
        wanted = _row(*names)
        for _ in range(number - 1):
            wanted.add(_row(*names))
        wanted.model, wanted.user = model, user
        expect(found[names] == wanted, f"the sum of {names} must be {wanted}, got {found[names]}")
