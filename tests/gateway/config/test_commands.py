from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from enginehouse.cli import main
from enginehouse.config.schema import Config
from enginehouse_offline.render import effective, json_schema


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["enginehouse", *arguments])
    with pytest.raises(SystemExit) as exit:
        main()
    return int(exit.value.code or 0)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENGINEHOUSE_CONFIG", "enginehouse.toml")


def test_check_prints_the_effective_configuration(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("")
    assert run(monkeypatch, "check", "--all") == 0
    printed = capsys.readouterr()
    assert printed.out == effective(Config())
    assert printed.err == ""


def test_check_prints_what_it_built_and_what_differs_from_the_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('[backends.b]\nurl = "http://h"\npriority = 0\nrole = "decode"\n[routing]\nstrategy = "smrt"\n')
    monkeypatch.setenv("ENGINEHOUSE_SERVER_PORT", "9000")
    assert run(monkeypatch, "check") == 0
    told, built, workers, _, empty, *lines = capsys.readouterr().out.splitlines()
    assert (told, empty) == ("# enginehouse.toml has no errors, and 1 warning.", "")
    assert built.startswith("# Built without starting anything: 1 backend, 0 models to launch, ")
    assert workers == "# One process will serve: server.workers = 1."
    assert lines == [
        "[server]",
        'host = "127.0.0.1"',
        "port = 9000",
        "",
        "[routing]",
        'strategy = "smart"',
        "weights = { priority = 50, load = 30, latency = 20 }",
        "",
        "[backends]",
        'b = { url = "http://h", role = "decode" }',
    ]


def test_check_prints_a_page_without_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ENGINEHOUSE_CONFIG")
    assert run(monkeypatch, "check") == 0
    assert capsys.readouterr().out.startswith("# There is no configuration file, and the environment has no errors.\n")


def test_check_separates_warnings_from_errors(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("[server]\nport = 1\n")
    monkeypatch.setenv("ENGINEHOUSE_SERVER_PROT", "2")
    assert run(monkeypatch, "check", "--config", str(file)) == 0
    printed = capsys.readouterr()
    assert "port = 1\n" in printed.out
    assert printed.err.startswith("warning: ENGINEHOUSE_SERVER_PROT: ")


def test_check_prints_each_error_on_a_line(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("[server]\nprot = 1\nport = -1\n")
    assert run(monkeypatch, "check") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        'enginehouse: enginehouse.toml: server.prot: unknown key (did you mean "port"?)',
        "enginehouse.toml: server.port: expected a whole number from 0 to 65535, got -1",
    ]


def test_check_prints_json_for_a_good_configuration(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('[backends.b]\nurl = "http://h/v1"\napi_key = "s3cret"\n[plugins.random]\nseed = 7\n')
    assert run(monkeypatch, "check", "--json") == 0
    out = capsys.readouterr().out
    printed = json.loads(out)
    assert (printed["ok"], printed["file"], len(printed["warnings"])) == (True, "enginehouse.toml", 1)
    assert printed["config"]["server"]["drain_timeout"] == "30s"
    assert printed["config"]["backends"]["b"]["api_key"] == "***"
    assert printed["config"]["plugins"]["random"] == {"seed": 7}
    assert "s3cret" not in out


@pytest.mark.parametrize(
    ("text", "keys"),
    [("[server]\nprot = 1", ["server.prot"]), ("[server]\nprot = 1\nqqq = 2", ["server.prot", "server.qqq"])],
)
def test_check_prints_json_for_a_bad_configuration(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, keys: list[str]
) -> None:
    file.write_text(text)
    assert run(monkeypatch, "check", "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is False
    assert [error["key"] for error in printed["errors"]] == keys
    assert {"file": "enginehouse.toml", "problem": "unknown key"}.items() <= printed["errors"][0].items()


def test_schema_prints_the_json_schema(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "schema") == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
