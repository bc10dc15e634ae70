"""``enginehouse service install`` and ``remove``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from enginehouse import ConfigError
from enginehouse_service.services import LABEL, Service, launchd_list, systemd_unit

UNIT_NAME = "enginehouse.service"


class ServiceFile(NamedTuple):
    """Where a service manager reads a service, and how it is told to."""

    path: Path
    text: bytes
    start: Sequence[Sequence[str]]
    stop: Sequence[Sequence[str]]
    hint: str


@click.group()
def service() -> None:
    """Let systemd or launchd start the gateway."""


@service.command()
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="The configuration that it serves.")
@click.option(
    "--system",
    is_flag=True,
    help="Start it with the machine, on Linux as the user enginehouse; else with your session.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the service's file; write and start nothing.")
def install(config: Path | None, system: bool, only_print: bool) -> None:
    """Install the gateway as a service, and start it.

    The service is one of systemd or launchd."""
    file = _file(Service(_program(), config.resolve() if config else None, system))
    if only_print:
        click.echo(file.text.decode(), nl=False)
        return
    if config is not None and not config.is_file():
        raise ConfigError("is not there", file=str(config), remedy="write it first; `--print` shows the service's file")
    _write(file)
    for command in file.start:
        _run(command)
    click.echo(f"{file.path}: written and started. {file.hint}")


@service.command()
@click.option("--system", is_flag=True, help="The service that starts with the machine.")
def remove(system: bool) -> None:
    """Stop the service and delete its file. Configuration and state stay."""
    file = _file(Service(_program(), None, system))
    if not file.path.exists():
        raise ConfigError("is not a service", file=str(file.path), remedy="`enginehouse service install` makes it")
    for command in file.stop:
        _run(command)
    file.path.unlink()
    click.echo(f"{file.path}: stopped and deleted")


def _program() -> Path:
    """The command that runs now, found again without this shell's ``PATH``."""
    found = shutil.which(sys.argv[0]) or shutil.which("enginehouse")
    return Path(found).absolute() if found else Path(sys.executable).with_name("enginehouse")


def _file(gateway: Service) -> ServiceFile:
    return _launchd(gateway) if sys.platform == "darwin" else _systemd(gateway)


def _systemd(gateway: Service) -> ServiceFile:
    scope = [] if gateway.system else ["--user"]
    folder = Path("/etc/systemd/system") if gateway.system else Path.home() / ".config/systemd/user"
    control = ["systemctl", *scope]
    logs = f"`journalctl {'' if gateway.system else '--user '}-u enginehouse -f` follows its log."
    stays = "" if gateway.system else " `loginctl enable-linger` keeps it running while you are logged out."
    return ServiceFile(
        folder / UNIT_NAME,
        systemd_unit(gateway).encode(),
        ([*control, "daemon-reload"], [*control, "enable", "--now", UNIT_NAME]),
        ([*control, "disable", "--now", UNIT_NAME],),
        logs + stays,
    )


def _launchd(gateway: Service) -> ServiceFile:
    library = Path("/Library") if gateway.system else Path.home() / "Library"
    path = library / ("LaunchDaemons" if gateway.system else "LaunchAgents") / f"{LABEL}.plist"
    log = library / "Logs/enginehouse.log"
    return ServiceFile(
        path,
        launchd_list(gateway, log),
        (["launchctl", "load", "-w", str(path)],),
        (["launchctl", "unload", "-w", str(path)],),
        f"Its log is {log}.",
    )


def _write(file: ServiceFile) -> None:
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_bytes(file.text)
    except OSError as error:
        remedy = "run it as root, or without --system"
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(file.path), remedy=remedy) from None


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = str(error) if isinstance(error, OSError) else f"status {error.returncode}"
        raise click.ClickException(
            f"`{' '.join(command)}` failed: {why}. The file stays; run the command by hand."
        ) from None
