from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_operations import activity as command
from tests.support import plain_httpx

BODY = {"model": "sim-small", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RunningGateway('[models.sim-small]\ndriver = "sim"\n') as gateway:
        for more in ({}, {"model": "unknown"}):
            plain_httpx.post(f"{gateway.url}/v1/chat/completions", json={**BODY, **more}, timeout=30)
        yield gateway.url


def shown(url: str, *options: str) -> str:
    answer = CliRunner().invoke(command.activity, ["--url", url, *options], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.output


def test_a_line_for_each_request(url: str) -> None:
    lines = shown(url).splitlines()
    assert "model" in lines[0]
    assert "sim-small" in lines[1]
    assert "404" in lines[2]


def test_json_lines(url: str) -> None:
    rows = [json.loads(line) for line in shown(url, "--json").splitlines()]
    assert [(row["asked"], row["status"]) for row in rows] == [("sim-small", 200), ("unknown", 404)]


def test_csv_has_a_heading(url: str) -> None:
    heading, *lines = shown(url, "--csv").splitlines()
    assert heading.startswith("id,method,path")
    assert len(lines) == 2


def test_the_requests_can_be_chosen(url: str) -> None:
    assert [json.loads(line)["status"] for line in shown(url, "--json", "--status", "4xx").splitlines()] == [404]
    assert shown(url, "--csv", "--model", "nothing") == ""


def test_following_shows_each_request_once(url: str) -> None:
    pauses: list[float] = []
    batches = command._batches(GatewayClient(url), {"limit": 50}, follow=True, sleep=pauses.append)
    first = next(batches)
    assert next(batches) == []
    plain_httpx.post(f"{url}/v1/chat/completions", json=BODY, timeout=30)
    [row] = next(batches)
    assert row["number"] == len(first) + 1
    assert len(pauses) == 2
