"""What commands of plugins share with the gateway's own."""

from __future__ import annotations

from enginehouse.cli.listen import configured_url
from enginehouse.cli.options import config_option, warn

__all__ = [
    "config_option",
    "configured_url",
    "warn",
]
