"""What commands of plugins share with the gateway's own."""

from __future__ import annotations

from enginehouse.cli.options import config_option as config_option
from enginehouse.cli.options import warn as warn
from enginehouse.processes.listen import configured_url as configured_url
