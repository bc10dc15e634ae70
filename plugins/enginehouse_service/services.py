"""A service of the gateway, as systemd's unit or launchd's property list."""

from __future__ import annotations

import plistlib
from dataclasses import dataclass
from pathlib import Path

LABEL = "dev.enginehouse.gateway"
"""launchd's name of the service."""

UNIT = """\
[Unit]
Description=Enginehouse, a gateway for inference engines
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
# `systemctl reload` reads the configuration again. SIGUSR2 upgrades without a break; the new process reports its id.
ExecReload=/bin/kill -HUP $MAINPID
# A gateway whose event loop is blocked for this long is killed and started again; its engines keep running.
WatchdogSec=120
# SIGTERM goes to the gateway alone: it lets live requests finish, then stops its engines.
KillMode=mixed
# Longer than server.drain_timeout and the longest models.*.stop_timeout together.
TimeoutStopSec=90
Restart=on-failure
# It is tried again without an end, but not hundreds of times a minute: a broken configuration ends it at once.
RestartSec=2
{account}
[Install]
WantedBy={target}
"""
SYSTEM_ACCOUNT = """\
User=enginehouse
StateDirectory=enginehouse
Environment=ENGINEHOUSE_STATE_DIR=/var/lib/enginehouse
# The variables that the configuration names as "env:NAME".
EnvironmentFile=-/etc/enginehouse/secrets.env
UMask=0077
# All this also holds for the engines that the gateway launches. They may use every device, or they would find no GPU
# (so neither PrivateDevices nor ProtectClock), and make memory executable, as compilers of kernels do.
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
ProtectProc=invisible
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
PrivateTmp=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
USER_ACCOUNT = """\
EnvironmentFile=-%h/.config/enginehouse/secrets.env
"""


@dataclass(frozen=True, slots=True)
class Service:
    """How the gateway runs when nobody starts it by hand."""

    program: Path
    """The ``enginehouse`` command."""

    config: Path | None
    """Its configuration; without one, the gateway looks it up as ``enginehouse serve`` does."""

    system: bool
    """Whether it starts with the machine; else with the user's session."""

    def command(self) -> list[str]:
        """The words of the command line."""
        return [str(self.program), "serve", *(("--config", str(self.config)) if self.config else ())]


def systemd_unit(service: Service) -> str:
    """The unit's text."""
    return UNIT.format(
        command=" ".join(map(_unit_word, service.command())),
        account=SYSTEM_ACCOUNT if service.system else USER_ACCOUNT,
        target="multi-user.target" if service.system else "default.target",
    )


def _unit_word(word: str) -> str:
    """``word`` as ``ExecStart=`` takes it: ``%`` and ``$`` are special, quotes keep spaces (systemd.syntax(7))."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or " " in word else word


def launchd_list(service: Service, log: Path) -> bytes:
    """The property list's bytes. The gateway's lines are appended to ``log``."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": service.command(),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ExitTimeOut": 90,  # seconds for live requests and engines to end
            "ProcessType": "Interactive",  # else macOS slows it down in the background
            "StandardOutPath": str(log),
            "StandardErrorPath": str(log),
        }
    )
