"""A continuer of a plugin that fails to gather an answer: its client gets an error that names the plugin."""

from __future__ import annotations

from typing import ClassVar, cast

import pytest

from enginehouse.continuers import Gathering, NewShare
from enginehouse.plugin_manager.registry import Registry
from enginehouse_continuation.continuer import StreamContinuer
from tests.support.model_engine import StartModelEngine
from tests.support.registries import registry_with
from tests.support.served_gateway import OpenGateway


class FailingGathering(Gathering):
    fails_at: ClassVar[str] = ""

    def as_stream(self, body: bytes) -> bytes:
        self._fail_at("as_stream")
        return body[:-1] + b',"stream":true}'

    def add(self, piece: bytes) -> None:
        self._fail_at("add")

    def body(self) -> bytes:
        self._fail_at("body")
        return b"{}" if self.fails_at != "what body returns" else cast(bytes, "{}")

    def release(self) -> None:
        self._fail_at("release")

    def _fail_at(self, step: str) -> None:
        if self.fails_at == step:
            raise KeyError(step)


class OwnContinuer(StreamContinuer):
    def gathered(self, path: str, body: bytes, share: NewShare) -> Gathering | None:  # type: ignore[override]
        return FailingGathering()


@pytest.fixture(scope="module")
def registry() -> Registry:
    return registry_with("continuer", "own", OwnContinuer, instead_of="continuation")


@pytest.mark.parametrize("step", ["", "as_stream", "add", "body", "what body returns", "release"])
async def test_a_client_gets_an_answer_or_an_error_that_names_the_plugin(
    house: OpenGateway, model_engine: StartModelEngine, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(FailingGathering, "fails_at", step)
    gateway = await house(
        await model_engine(), await model_engine(), backend={"driver": "vllm"}, routing={"gather": True}
    )
    reply = await gateway.ask(gateway.post({"messages": [{"role": "user", "content": "Tell"}], "max_tokens": 40}))
    if step in ("", "release"):
        assert (reply.status, reply.body) == (200, b"{}")
    else:
        assert reply.status == 500
        assert reply.error["code"] == "plugin_failed"
        assert reply.error["details"] == {"kind": "continuer", "type": "own", "plugin": "acme"}
    await gateway.quiet()
    assert set(gateway.pending().values()) == {0}
