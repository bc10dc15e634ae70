"""Services as files of systemd and launchd, and the commands that write them."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_service import service_command
from enginehouse_service.services import Service, launchd_list, systemd_unit

PROGRAM = Path("/opt/enginehouse/bin/enginehouse")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands that were given to the service manager. The home is a new folder, the system is Linux."""
    commands: list[list[str]] = []
    monkeypatch.setattr(service_command, "_run", commands.append)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    return commands


def test_a_unit_of_the_machine_has_a_user_of_its_own() -> None:
    unit = systemd_unit(Service(PROGRAM, Path("/etc/enginehouse/enginehouse.toml"), system=True))
    assert f"ExecStart={PROGRAM} serve --config /etc/enginehouse/enginehouse.toml\n" in unit
    assert "User=enginehouse\n" in unit
    assert "WantedBy=multi-user.target\n" in unit


def test_a_unit_of_the_session_has_no_user() -> None:
    unit = systemd_unit(Service(PROGRAM, None, system=False))
    assert f"ExecStart={PROGRAM} serve\n" in unit
    assert "User=" not in unit
    assert "WantedBy=default.target\n" in unit


def test_odd_paths_stay_one_word() -> None:
    unit = systemd_unit(Service(PROGRAM, Path('/srv/my "50%" $x.toml'), system=False))
    assert '--config "/srv/my \\"50%%\\" $$x.toml"\n' in unit


@pytest.mark.parametrize("system", [True, False])
def test_systemd_finds_no_fault(tmp_path: Path, system: bool) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze is in PATH")
    file = tmp_path / "enginehouse.service"
    file.write_text(systemd_unit(Service(Path(sys.executable), None, system)), "utf-8")
    checked = subprocess.run([analyze, "verify", *([] if system else ["--user"]), file], capture_output=True, text=True)
    assert "enginehouse.service" not in checked.stderr, checked.stderr


def test_the_unit_of_the_machine_is_confined(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze is in PATH")
    file = tmp_path / "enginehouse.service"
    file.write_text(systemd_unit(Service(Path(sys.executable), None, system=True)), "utf-8")
    command = [analyze, "security", "--no-pager", "--offline=true", "--threshold=40", str(file)]  # of 100
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_configuration_that_is_not_there_is_no_service_but_its_file_is_shown(ran: list[list[str]]) -> None:
    shown = CliRunner().invoke(enginehouse, ["service", "install", "--config", "/nowhere.toml", "--print"])
    assert "serve --config /nowhere.toml" in shown.output
    refused = CliRunner().invoke(enginehouse, ["service", "install", "--config", "/nowhere.toml"])
    assert refused.exit_code != 0
    assert ran == []


def test_launchd_gets_the_same_words() -> None:
    found = plistlib.loads(launchd_list(Service(PROGRAM, Path("/a b.toml"), system=False), Path("/log")))
    assert found["ProgramArguments"] == [str(PROGRAM), "serve", "--config", "/a b.toml"]
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["StandardErrorPath"] == "/log"


def test_install_writes_and_starts_and_remove_undoes_it(ran: list[list[str]], tmp_path: Path) -> None:
    installed = CliRunner().invoke(enginehouse, ["service", "install"])
    unit = tmp_path / ".config/systemd/user/enginehouse.service"
    assert installed.exit_code == 0, installed.output
    assert " serve\n" in unit.read_text("utf-8")
    enable = ["systemctl", "--user", "enable", "--now", "enginehouse.service"]
    assert [list(each) for each in ran] == [["systemctl", "--user", "daemon-reload"], enable]
    removed = CliRunner().invoke(enginehouse, ["service", "remove"])
    assert removed.exit_code == 0, removed.output
    assert not unit.exists()


def test_macos_gets_an_agent(ran: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    installed = CliRunner().invoke(enginehouse, ["service", "install"])
    assert installed.exit_code == 0, installed.output
    agent = tmp_path / "Library/LaunchAgents/dev.enginehouse.gateway.plist"
    assert plistlib.loads(agent.read_bytes())["RunAtLoad"]
    assert [list(each) for each in ran] == [["launchctl", "load", "-w", str(agent)]]


def test_print_changes_nothing(ran: list[list[str]], tmp_path: Path) -> None:
    printed = CliRunner().invoke(enginehouse, ["service", "install", "--system", "--print"])
    assert printed.output.startswith("[Unit]\n")
    assert not ran
    assert not list(tmp_path.iterdir())


def test_remove_without_a_service_says_so(ran: list[list[str]]) -> None:
    removed = CliRunner().invoke(enginehouse, ["service", "remove"])
    assert removed.exit_code == 1
    assert "enginehouse service install" in str(removed.output) + str(removed.exception)
    assert not ran
