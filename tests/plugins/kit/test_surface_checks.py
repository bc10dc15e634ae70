from __future__ import annotations

from typing import Any

import click
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router

from enginehouse_kit.testing import check_command, check_routes


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@pytest.mark.parametrize(
    ("routes", "rule"),
    [
        (None, "must return a list of Starlette routes, got None"),
        (Route("/one", page), "must return a list of Starlette routes"),
        ([page], "it has <function page"),
        ([Route("/one", page), Route("/one", page)], "several for GET /one, HEAD /one"),
    ],
)
def test_routes_that_break_a_rule_are_caught(routes: Any, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_routes(lambda: routes)


def test_routes_that_keep_the_rules_pass() -> None:
    check_routes(lambda: [])
    check_routes(
        lambda: [
            Route("/one", page),
            Route("/one", page, methods=["POST"]),
            Mount("/two", Router()),
            Mount("/", Router()),
        ]
    )


class Offline(click.Command):
    def get_help(self, ctx: click.Context) -> str:
        raise RuntimeError("no network")


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (page, "must return a click command"),
        (click.Command("x"), "must have a help text"),
        (Offline("x", help="Help."), "--help must exit with status 0, got 1: RuntimeError"),
    ],
)
def test_a_command_that_breaks_a_rule_is_caught(command: Any, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_command(lambda: command)


def test_a_command_that_keeps_the_rules_passes() -> None:
    check_command(lambda: click.Command("x", help="Help."))
    check_command(lambda: click.Group("x", help="Help."))
