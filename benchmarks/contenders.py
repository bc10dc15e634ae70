"""What is measured: the engine itself, the gateway before it, and other people's routers where they are installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from enginehouse.bench.engine import ANSWER, MODELS

GATEWAY_CORE, ENGINE_CORE = 0, 1
CHUNKS = 250
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log /dev/null;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port}; default_type application/json;
    location /v1/models {{ return 200 '{models}'; }}
    location / {{ return 200 '{answer}'; }}
  }}
}}
"""


class Contender(NamedTuple):
    """A server to send requests to; ``pid`` is that of the process whose time is counted."""

    name: str
    url: str
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(command: Sequence[str], core: int, ready: str) -> Iterator[int]:
    """Run ``command`` pinned to ``core`` from when ``ready`` answers; yields its process id."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        os.sched_setaffinity(process.pid, {core})
        try:
            _wait(ready, process, output)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(url: str, process: subprocess.Popen[bytes], output: object) -> None:
    for _ in range(300):
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{process.args!r} did not get ready")


@contextmanager
def fast_engine(folder: Path) -> Iterator[Contender]:
    """nginx with a fixed answer where it is installed, else ``small_engine``."""
    port = free_port()
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None:
        with small_engine() as engine:
            yield engine
        return
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port, models=MODELS.decode(), answer=ANSWER.decode()))
    url = f"http://127.0.0.1:{port}"
    with running([nginx, "-p", str(folder), "-c", str(config)], ENGINE_CORE, f"{url}/v1/models") as pid:
        yield Contender("direct", url, pid)


@contextmanager
def small_engine() -> Iterator[Contender]:
    """The engine of ``enginehouse bench``, which can also stream."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "enginehouse.bench.engine", str(port), str(CHUNKS)]
    with running(command, ENGINE_CORE, f"{url}/v1/models") as pid:
        yield Contender("direct", url, pid)


@contextmanager
def enginehouse(engine: Contender, folder: Path) -> Iterator[Contender]:
    """The gateway, with three backends to choose from."""
    port = free_port()
    config = folder / "enginehouse.toml"
    backends = "".join(f'[backends.{name}]\nurl = "{engine.url}"\n' for name in ("a", "b", "c"))
    config.write_text(f"[server]\nport = {port}\n{backends}")
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "enginehouse", "serve", "--config", str(config)]
    with running(command, GATEWAY_CORE, f"{url}/ready") as pid:
        yield Contender("enginehouse", url, pid)


@contextmanager
def vllm_router(engine: Contender, program: str) -> Iterator[Contender]:
    """The Rust router of the vLLM project, from PyPI's ``vllm-router``."""
    port, metrics = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [program, "--worker-urls", engine.url, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--policy", "round_robin", "--prometheus-port", str(metrics), "--log-level", "warning"]
    with running(command, GATEWAY_CORE, f"{url}/health") as pid:
        yield Contender("vllm-router", url, pid)
