"""What commands of plugins share with the gateway's own."""

from __future__ import annotations

from enginehouse.cli.options import config_option, warn
from enginehouse.processes.listen import configured_url

__all__ = [
    "config_option",
    "configured_url",
    "warn",
]
