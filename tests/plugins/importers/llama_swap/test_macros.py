from __future__ import annotations

from typing import Any

import pytest

from enginehouse_importers.llama_swap.document import Macros, unknown_macros


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${number}", 7),
        ("${flag}", True),
        ("is ${flag}, ${number}, ${half}, ${whole}", "is true, 7, 0.5, 1"),
        ("${text}", "text"),
        ("${nested}", "a text b"),
        ("${forward}", "${text2}"),
        ({"${text}": ["${number}", {"x": "${text}"}]}, {"text": [7, {"x": "text"}]}),
        (None, None),
        ("$text {text} ${unknown}", "$text {text} ${unknown}"),
    ],
)
def test_macros_are_replaced(value: Any, expected: Any) -> None:
    macros = Macros(
        {
            "number": 7,
            "flag": True,
            "half": 0.5,
            "whole": 1.0,
            "text": "text",
            "nested": "a ${text} b",
            "forward": "${text2}",
            "text2": "never",
        }
    )
    assert macros.expand(value) == expected


def test_a_models_macro_takes_the_place_of_a_common_one() -> None:
    macros = Macros({"ctx": 1, "args": "-c ${ctx}"})
    assert macros.over({"ctx": 2, "more": "${args} -x"}).expand("${more}") == "-c 2 -x"
    assert macros.expand("${args}") == "-c 1"


def test_remaining_macros_are_unknown_unless_llama_swap_defines_them() -> None:
    left = {"${a}": ["${PORT} ${b-c}"], "x": {"y": "${MODEL_ID} ${PID} ${env:HOME} ${d_1}"}, "z": 3}
    assert list(unknown_macros(left)) == ["a", "b-c", "d_1"]
