"""The conformance check of extractors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, Final

import msgspec

from enginehouse import Extractor, InferenceRequest, InvalidRequest, Requirements
from enginehouse_kit.checks.samples import requests
from enginehouse_kit.expect import affordable, expect

_FIELDS: Final = [field.name for field in fields(Requirements)]
_OTHERS: dict[str, Any] = {
    "stream": True,
    "estimated_tokens": 1234,
    "needs_vision": True,
    "needs_tools": True,
    "needs_json_mode": True,
    "extra": {"another_plugin.value": "kept"},
}
"""Values that earlier extractors may have set."""


def check_extractor(factory: Callable[[], Extractor]) -> None:
    """Check that ``extract`` writes values of the declared types and is deterministic.

    It must not change the request, its decoded ``json``, ``requirements.model`` and ``path``, nor the values that other
    extractors set. It may raise ``InvalidRequest`` for any request.
    """
    it = factory()
    largest = max(requests(), key=lambda request: len(request.raw))
    samples = affordable(list(requests()), "extract", lambda: _extract(it, largest))
    outcomes = [_checked(it, request) for request in samples]
    own = {name for outcome in outcomes for name in _FIELDS if getattr(outcome, name) != getattr(_blank(outcome), name)}
    keys = {key for outcome in outcomes for key in outcome.extra}
    others = [name for name in _OTHERS if name not in own | {"extra"}]
    for request in samples:
        _check_others(it, request, others, set(_OTHERS["extra"]) - keys)


def _checked(it: Extractor, request: InferenceRequest) -> Requirements:
    """The requirements of ``request``. Raises ``AssertionError`` if ``extract`` breaks a rule."""
    before = (list(request.headers), deepcopy(request.body), deepcopy(request.json))
    first, second = _extract(it, request), _extract(it, request)
    _expect_types(first)
    expect(first == second, f"the same request must give the same: {first} and {second}")
    blank = _blank(request)
    expect(first.model == blank.model, f"extract must not change requirements.model, got {first.model!r}")
    expect(first.path == blank.path, f"extract must not change requirements.path, got {first.path!r}")
    expect(list(request.headers) == before[0] and request.body == before[1], "extract must not change the request")
    expect(request.json == before[2], "extract must not change request.json: other plugins read the same object")
    return first


def _check_others(it: Extractor, request: InferenceRequest, names: Iterable[str], keys: Iterable[str]) -> None:
    """Check that ``extract`` leaves fields and keys of ``extra`` alone that it never sets itself."""
    required = _extract(it, request, **deepcopy(_OTHERS))
    for name in names:
        kept = getattr(required, name) == _OTHERS[name]
        expect(kept, f"extract must keep what others set: it changed requirements.{name}")
    for key in keys:
        kept = isinstance(required.extra, dict) and required.extra.get(key) == _OTHERS["extra"][key]
        expect(kept, f"extract must keep what others set: it changed requirements.extra[{key!r}]")


def _extract(it: Extractor, request: InferenceRequest, **before: Any) -> Requirements:
    required = replace(_blank(request), **before)
    try:
        returned: Any = it.extract(request, required)
    except InvalidRequest:
        returned = None
    expect(returned is None, f"extract must write to the requirements and return nothing, got {returned!r}")
    return required


def _blank(request: InferenceRequest | Requirements) -> Requirements:
    model = request.model if isinstance(request, Requirements) else request.body.model
    return Requirements(model=model, path=request.path)


def _expect_types(required: Requirements) -> None:
    for name, example in _OTHERS.items():
        value = getattr(required, name)
        try:
            msgspec.convert(value, type(example))
        except msgspec.ValidationError as error:
            raise AssertionError(f"requirements.{name} has a wrong value {value!r}: {error}") from error
