"""The middleware that has protocols translate requests and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from enginehouse import Middleware
from enginehouse.middleware import MiddlewareFacts, OpenExchange, Opening, ResponseWriter
from enginehouse_translation.translated_exchange import TranslatedExchange
from enginehouse_translation.turns import TranslationTurns


class Translating(Middleware):
    """Opens each request when its body says what engines are asked for."""

    serves: ClassVar[Literal["interceptors", "protocols"]] = "protocols"

    def use(self, gateway: MiddlewareFacts) -> None:
        self._gateway = gateway
        self._turns = TranslationTurns()

    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        return TranslatedExchange(self._gateway, opening, writer, inner, self._turns)
