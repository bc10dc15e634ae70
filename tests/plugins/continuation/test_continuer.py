"""The continuer keeps the rules of its interface; without it, streams end with their engines."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse import Candidate
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.continuers import KeptStream, StreamTokens
from enginehouse.domain.errors import PluginError
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse_continuation.continuer import StreamContinuer
from enginehouse_kit.testing import check_continuer, create


def test_it_keeps_the_rules_of_a_continuer() -> None:
    check_continuer(lambda: create("continuer", "continuation"))


class OtherList(KeptStream):
    def __init__(self) -> None:
        self.pieces = []

    def take(self, piece: bytes) -> bytes:
        self.pieces.append(piece)
        return piece

    def read(self) -> None:
        self.pieces = []

    def count(self) -> None: ...

    def release(self) -> None: ...

    def tokens(self) -> StreamTokens:
        return StreamTokens()

    def ending(self) -> bytes | None:
        return None

    def may_go_on(self) -> bool:
        return False

    def why_not_movable(self) -> str:
        return ""

    def saved(self, candidate: Candidate) -> bytes | None:
        return None


class WithOtherLists(StreamContinuer):
    def keep(self, path: str, body: bytes, *_: Any) -> tuple[KeptStream | None, bytes]:
        return OtherList(), body


def test_the_check_finds_a_stream_that_loses_what_the_gateway_adds() -> None:
    with pytest.raises(AssertionError, match="leave the same list there"):
        check_continuer(WithOtherLists)


async def test_a_gateway_has_one_continuer() -> None:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    registry.add([Registered(kind="continuer", type="own", factory=StreamContinuer, **origin)])
    with pytest.raises(PluginError, match="both continue streams"):
        Gateway(Config(), registry)
