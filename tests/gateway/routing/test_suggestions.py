"""Errors that help: close names of models, and how much too long a prompt is."""

from __future__ import annotations

import pytest

from enginehouse import Capabilities
from enginehouse.domain.errors import CapabilityMismatch
from enginehouse.errors import ModelNotFound
from enginehouse_kit.testing import candidate, requirements
from tests.support.routing import make_router, make_snapshot, take_route


def test_a_prompt_that_is_too_long_is_told_with_both_numbers() -> None:
    snapshot = make_snapshot(
        candidate("a", "m", capabilities=Capabilities(context_length=100)),
        candidate("b", "m", capabilities=Capabilities(context_length=200)),
    )
    with pytest.raises(CapabilityMismatch, match="maximum context length is 200 tokens") as caught:
        take_route(make_router(), requirements("m", estimated_tokens=300), snapshot)
    assert caught.value.code == "context_length_exceeded"
    assert (caught.value.details["tokens"], caught.value.details["limit"]) == (300, 200)


def test_an_unknown_model_suggests_a_close_name_and_lists_five() -> None:
    error = ModelNotFound("qwen-7b")
    error.suggest([f"qwen:{size}b" for size in range(3, 10)])
    assert 'did you mean "qwen:7b"?' in error.message
    assert "'qwen:3b', 'qwen:4b', 'qwen:5b', 'qwen:6b', 'qwen:7b' and others" in error.message
    assert len(error.details["models"]) == 5


def test_nothing_is_suggested_where_there_is_nothing() -> None:
    error = ModelNotFound("m")
    error.suggest([])
    assert error.message == "Model 'm' not found"
