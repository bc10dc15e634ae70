from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse import Capabilities, Filter, Health
from enginehouse_kit.testing import candidate, requirements
from enginehouse_routing.needs import (
    LONGEST_TOKENS,
    CapabilitiesFilter,
    ContextLengthFilter,
    HealthFilter,
    PausedFilter,
)


def kept(filter: Filter, needs: dict[str, Any], **fields: Any) -> bool:
    """Whether a filter keeps a candidate. The joined filters keep it if all four do."""
    asked = [candidate(**fields)]
    filters: list[Filter] = [HealthFilter(), CapabilitiesFilter(), ContextLengthFilter(), PausedFilter()]
    joined = filters[0].joined(filters[1:])
    assert joined is not None
    by_each = all(each.keep(requirements(**needs), asked) for each in filters)
    assert bool(joined.keep(requirements(**needs), asked)) == by_each
    assert bool(joined.why(requirements(**needs), asked[0])) != by_each
    return bool(filter.keep(requirements(**needs), asked))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"health": Health.UNHEALTHY}, "backend 'gpu-1' is unhealthy"),
        ({"health": Health.UNKNOWN}, "backend 'gpu-1' has not been checked yet"),
        ({"draining": True}, "backend 'gpu-1' is being drained"),
        ({"draining": True, "health": Health.UNHEALTHY}, "backend 'gpu-1' is unhealthy"),
    ],
)
def test_only_healthy_backends_that_are_not_drained_are_kept(fields: dict[str, Any], why: str) -> None:
    filter = HealthFilter()
    assert kept(filter, {})
    assert not kept(filter, {}, **fields)
    assert filter.why(requirements(), candidate(**fields)) == why
    assert filter.missing(requirements(), candidate(**fields)) == ()


@pytest.mark.parametrize("need", ["vision", "tools", "json_mode"])
def test_a_needed_capability_must_not_be_a_known_no(need: str) -> None:
    filter = CapabilitiesFilter()
    lacking, able = (msgspec.structs.replace(Capabilities(), **{need: answer}) for answer in (False, True))
    needs: dict[str, Any] = {f"needs_{need}": True}
    assert not kept(filter, needs, capabilities=lacking)
    assert kept(filter, needs, capabilities=able)
    assert kept(filter, needs), "unknown is allowed"
    assert kept(filter, {}, capabilities=lacking), "nobody asked for it"
    assert filter.why(requirements(**needs), candidate(capabilities=lacking)) == f"lacks {need}"


def test_all_missing_capabilities_are_named() -> None:
    nothing = candidate(capabilities=Capabilities(vision=False, tools=False, json_mode=False))
    needs = requirements(needs_vision=True, needs_tools=True, needs_json_mode=True)
    assert list(CapabilitiesFilter().missing(needs, nothing)) == ["vision", "tools", "json_mode"]
    assert CapabilitiesFilter().why(needs, nothing) == "lacks vision, tools, json_mode"


@pytest.mark.parametrize(("tokens", "fits"), [(0, True), (4095, True), (4096, True), (4097, False)])
def test_the_estimated_tokens_must_fit_into_the_context(tokens: int, fits: bool) -> None:
    filter = ContextLengthFilter()
    needs, short = requirements(estimated_tokens=tokens), candidate(capabilities=Capabilities(context_length=4096))
    assert bool(filter.keep(needs, [short])) is fits
    assert list(filter.missing(needs, short)) == ([] if fits else ["context_length"])
    assert filter.keep(needs, [candidate()]), "unknown is allowed"


def test_a_request_that_is_too_long_is_told_by_how_much() -> None:
    short = candidate(capabilities=Capabilities(context_length=4096))
    assert ContextLengthFilter().why(requirements(estimated_tokens=5000), short) == (
        "about 5000 tokens do not fit into 4096"
    )


def test_of_texts_served_one_by_one_only_the_longest_must_fit() -> None:
    filter, capabilities = ContextLengthFilter(), Capabilities(context_length=100)
    many = {"estimated_tokens": 100_000, "extra": {LONGEST_TOKENS: 100}}
    assert kept(filter, many, capabilities=capabilities)
    assert not kept(filter, {**many, "extra": {LONGEST_TOKENS: 101}}, capabilities=capabilities)
