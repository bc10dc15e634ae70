"""What ``check`` hides in launch lines and in plugins' parameters."""

from __future__ import annotations

import pytest

from enginehouse_offline.masks import masked_arguments, masked_line, masked_parameters
from enginehouse_offline.render import effective
from tests.support.config_files import Load, Refuse


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("serve --api-key sk-1 --port ${port}", "serve --api-key *** --port ${port}"),
        ("serve --api-key=sk-1", "serve --api-key=***"),
        ("serve --api-key 'sk 1' -x", "serve --api-key *** -x"),
        ("env HF_TOKEN=hf_1 A=b serve", "env HF_TOKEN=*** A=b serve"),
        ("docker run -e OPENAI_API_KEY=sk-1 image", "docker run -e OPENAI_API_KEY=*** image"),
        ('curl -H "Authorization: Bearer sk-1" u', 'curl -H "Authorization: Bearer ***" u'),
        ('curl -H "x-api-key: sk-1" u', 'curl -H "x-api-key: ***" u'),
        ('serve --config {"api_key": "sk-1", "n": "5"}', 'serve --config {"api_key": ***, "n": "5"}'),
        ("serve -hft hf_1 --authToken t1 --cookie c1", "serve -hft *** --authToken *** --cookie ***"),
        ("serve --db postgres://me:sk-1@host/db?a=b", "serve --db postgres://me:***@host/db?a=b"),
        ("serve --db redis://:sk-1@host:6379", "serve --db redis://:***@host:6379"),
        ("serve --url http://[::1]:80/a@b:c", None),
        ("serve --api-key ${env:KEY}", "serve --api-key ${env:KEY}"),
        ("serve --max-tokens 5 --tokenizer t --key-file f --n-keep 3", None),
        ("serve --hf-token", None),
        ("${path}/key-value-server --monkey=1", None),
    ],
)
def test_values_of_secret_names_are_hidden_in_a_command(line: str, shown: str | None) -> None:
    assert masked_line(line) == (shown or line)


def test_values_of_secret_flags_are_hidden_in_arguments() -> None:
    words = ["--api-key", "sk-1", "--hf-token=hf_1", "--port", "80", "--token", "--x", "y", "--key", "${env:K}"]
    assert masked_arguments(words) == [
        "--api-key", "***", "--hf-token=***", "--port", "80", "--token", "--x", "y", "--key", "${env:K}"
    ]  # fmt: skip


def test_secrets_in_headers_and_urls_of_plugins_are_hidden() -> None:
    table = {
        "headers": {"Authorization": "Bearer sk-1"},
        "url": "https://h/list?token=sk-1&n=5",
        "pattern": "token=(.*)",
    }
    shown = {"headers": {"Authorization": "***"}, "url": "https://h/list?token=***", "pattern": "token=(.*)"}
    assert masked_parameters(table) == shown


def test_secret_parameters_of_plugins_are_hidden() -> None:
    table = {"api_key": "sk-1", "url": "u", "nested": {"password": "p", "tokens": ["a"]}, "token": "env:T", "key": 5}
    shown = {"api_key": "***", "url": "u", "nested": {"password": "***", "tokens": ["a"]}, "token": "env:T", "key": 5}
    assert masked_parameters(table) == shown


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[models.m]\ncommand = 'serve ${port} --api-key sk-1 --x'", "models.m.command"),
        ("[models.m]\ncommand = 'serve ${port}'\nargs = ['--token', 'sk-1']", "models.m.args"),
        ("[models.m]\ncommand = 'serve ${port}'\nstop_command = 'stop --password=sk-1'", "models.m.stop_command"),
        ("[plugins.p]\napi_key = 'sk-1'", "plugins.p.api_key"),
        ("[plugins.filter.p]\napi_key = 'sk-1'", "plugins.filter.p.api_key"),
        ("[plugins.p]\nservers = [{ api_key = 'sk-1' }]", "plugins.p.servers[0].api_key"),
        ("[discovery.d]\ntype = 'static'\ntoken = 'sk-1'", "discovery.d.token"),
        ("[services.s]\npassword = 'sk-1'", "services.s.password"),
        ("[batches]\ntoken = 'sk-1'", "batches.token"),
        ("[[guards]]\ntype = 'g'\nparameters = { token = 'sk-1' }", "guards[0].parameters.token"),
    ],
)
def test_what_check_printed_is_refused_until_it_is_whole_again(load: Load, refuse: Refuse, text: str, key: str) -> None:
    shown = effective(load(text).config)
    assert "sk-1" not in shown
    error = refuse(shown)
    assert error.key == key
    assert "mask of a secret" in error.problem


@pytest.mark.parametrize(
    "text", ["[telemetry]\nendpoint = 'http://me:sk-1@h:4317'", "[plugins.p]\nurl = 'redis://:sk-1@h'"]
)
def test_check_prints_no_password_of_a_url(load: Load, text: str) -> None:
    assert ":***@h" in effective(load(text).config)
