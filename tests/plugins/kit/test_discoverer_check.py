from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from enginehouse.backends import FoundBackend
from enginehouse_kit.discoverers import Discoverer
from enginehouse_kit.testing import check_discoverer


class Yields(Discoverer):
    found: Any = {"gpu-1": FoundBackend(url="http://127.0.0.1:8000")}

    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        yield self.found
        await asyncio.Event().wait()


class Nothing(Yields):
    found: Any = {}


class Urls(Yields):
    found: Any = {"gpu-1": "http://127.0.0.1:8000"}


class Names(Yields):
    found: Any = ["gpu-1"]


class NoScheme(Yields):
    found: Any = {"gpu-1": FoundBackend(url="127.0.0.1:8000")}


class Nameless(Yields):
    found: Any = {"": FoundBackend(url="http://127.0.0.1:8000")}


class Waits(Discoverer):
    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        await asyncio.Event().wait()
        yield {}


class Ends(Discoverer):
    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        return
        yield {}


class NoGenerator(Discoverer):
    def watch(self) -> Any:
        return [{}]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Urls, "'gpu-1' must be a FoundBackend"),
        (Names, "must yield a mapping"),
        (NoScheme, "url of 'gpu-1' must begin with http"),
        (Nameless, "must have a name"),
        (Waits, "must yield all backends within 0.01 seconds"),
        (Ends, "must yield all backends within"),
        (NoGenerator, "must be an async generator"),
    ],
)
def test_a_discoverer_that_breaks_a_rule_is_caught(broken: type[Discoverer], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_discoverer(broken, timeout=0.01)


@pytest.mark.parametrize("discoverer", [Yields, Nothing])
def test_a_discoverer_that_keeps_the_rules_passes(discoverer: type[Discoverer]) -> None:
    check_discoverer(discoverer)
