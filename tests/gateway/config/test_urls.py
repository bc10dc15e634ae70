"""What is wrong with the address of a backend is said."""

from __future__ import annotations

import pytest

from enginehouse.config.rules import is_base_url, url_problem


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("gpu:80", "it does not begin with http://"),
        ("http:/gpu:80", "it has no host"),
        ("http://gpu:99999", "port out of range 0-65535"),
        ("http://gpu:0", "0 is no port"),
        ("http://me:secret@gpu", "a key belongs in `api_key`"),
        ("http://gpu?x=1", "it has a query"),
        ("http://gpu#x", "it has a fragment"),
        ("http://gpu /v1", "it has a space"),
        ("http://[::1", "invalid IPv6 URL"),
    ],
)
def test_the_wrong_part_is_named_and_no_secret(url: str, problem: str) -> None:
    said = url_problem(url)
    assert problem in said
    assert "secret" not in said


@pytest.mark.parametrize("url", ["http://gpu", "https://gpu:8000/prefix", "http://[::1]:80"])
def test_addresses_of_servers(url: str) -> None:
    assert is_base_url(url)
