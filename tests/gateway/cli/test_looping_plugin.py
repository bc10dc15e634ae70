"""A plugin that never returns is named, and SIGTERM still ends the gateway."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.support.plugins import Install

LOOPS = """
class Loops(Filter):
    def keep(self, requirements, candidates):
        while True:
            pass
    def why(self, requirements, candidate):
        return ""
@hookimpl
def register_filters(register):
    register("loops", Loops)
"""


def ask(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v1/chat/completions", '{"model": "m", "messages": []}')
        connection.getresponse()


def test_sigterm_ends_a_gateway_whose_plugin_never_returns(install: Install, tmp_path: Path) -> None:
    install("acme", LOOPS)
    config = tmp_path / "enginehouse.toml"
    config.write_text('[server]\ndrain_timeout = "1s"\n[models.m]\ndriver = "sim"\n')
    command = [sys.executable, "-m", "enginehouse", "serve", "--port", "0", "--config", str(config)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "ENGINEHOUSE_STATE_DIR": str(tmp_path / "state")}
    log = tmp_path / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as gateway,
    ):
        try:
            assert gateway.stdout is not None
            port = int(re.findall(r":(\d+)", gateway.stdout.readline())[-1])
            client = threading.Thread(target=ask, args=[port])
            client.start()
            while "has blocked the event loop" not in log.read_text():
                client.join(0.05)
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(30) == 1
        finally:
            gateway.kill()
        client.join()
    assert "The event loop is blocked by 'acme' (enginehouse-acme 1.2.3) and cannot stop" in log.read_text()
