"""A key with a list of models gets no second name past its check."""

from __future__ import annotations

import json

import pytest

from enginehouse.domain.errors import InvalidRequest
from enginehouse.routing.body.rewrite import check_one_model

SEVERAL = [
    b'{"model":"n","model":"m"}',
    b'{"model":"m","model":"m"}',
    b'{"model":"m","Model":"n"}',
    b'{"MODEL":"n","model":"m"}',
    b'{"x":{"y":[1,{}]},"mOdEl" : "n", "model":"m"}',
    rb'{"\u006dodel":"n","model":"m"}',
    rb'{"model":"m","mo\u0064el":"n"}',
    rb'{"model":"m","mo\u0044el":"n"}',
    rb'{"model":"m","\u004Dodel":"n"}',
    b'{"model":"n","x":"}\\"model","model":"m"}',
    b'{"model":null,"model":"m"}',
    b'{"model":[{"model":1}],"model":"m"}',
]
ONE = [
    b'{"model":"m"}',
    rb'{"m\u006fdel":"m"}',
    b'{"model":"m","messages":[{"model":"n","Model":"n","model":"o"}]}',
    b'{"model":"m","metadata":{"model":"n"}}',
    b'{"model":"m","prompt":"\\"model\\":\\"n\\", \\u006dodel"}',
    b'{"model":"m","models":["n"],"model_":"n"," model":"n","x":"Model"}',
    json.dumps({"model": "m", "x": ["model"] * 5, "y": "model"}).encode(),
]


@pytest.mark.parametrize("body", SEVERAL)
def test_several_names_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as error:
        check_one_model(body)
    assert error.value.param == "model"


@pytest.mark.parametrize("body", ONE)
def test_one_name_is_enough(body: bytes) -> None:
    check_one_model(body)


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        check_one_model(b'{"model":"m","\xff":1}')
