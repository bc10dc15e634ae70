"""The continuer keeps the rules of its interface; without it, streams end with their engines."""

from __future__ import annotations

import pytest

from enginehouse.app.build_relay import find_continuer
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.continuers import KeptStream, NewShare
from enginehouse.domain.errors import PluginError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.drivers import SupportsContinuation
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse.relay.guarded_continuer import GuardedKeptStream
from enginehouse_continuation.continuer import StreamContinuer
from enginehouse_kit.testing import check_continuer, create


def test_it_keeps_the_rules_of_a_continuer() -> None:
    check_continuer(lambda: create("continuer", "continuation"))


class OtherList(GuardedKeptStream):
    def read(self) -> None:
        super().read()
        self.pieces = []


class WithOtherLists(StreamContinuer):
    def keep(
        self, path: str, body: bytes, driver: SupportsContinuation, share: NewShare
    ) -> tuple[KeptStream | None, bytes]:
        kept, body = super().keep(path, body, driver, share)
        return kept and OtherList(PluginId("continuer", "own", "acme"), kept), body


def test_the_check_finds_a_stream_that_loses_what_the_gateway_adds() -> None:
    with pytest.raises(AssertionError, match="leave the same list there"):
        check_continuer(WithOtherLists)


def test_a_gateway_has_one_continuer() -> None:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    registry.add([Registered(kind="continuer", type="own", factory=StreamContinuer, **origin)])
    with pytest.raises(PluginError, match="both continue streams"):
        find_continuer(Config(), registry)
