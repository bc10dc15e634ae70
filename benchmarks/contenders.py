"""What is measured: the engine itself, the gateway before it, and other people's gateways where they are installed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from enginehouse.bench.contenders import Contender, Cores, own_gateway, pin
from enginehouse.bench.engine import ANSWER, MODELS

CORES = Cores.of_this_machine()
CHUNKS = 100
_NGINX = """
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


class Measured(NamedTuple):
    """A contender, and the headers that its requests need."""

    contender: Contender
    headers: Mapping[str, str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str], cores: frozenset[int], ready: str, env: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run ``command`` on ``cores`` from when ``ready`` answers; yields its process id."""
    with tempfile.TemporaryFile() as output:
        environment = {**os.environ, **(env or {})}
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment)
        pin(process.pid, cores)
        try:
            _wait(ready, process)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(900):
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
def fast_engine(folder: Path) -> Iterator[str]:
    """nginx with a fixed answer where it is installed, else ``streaming_engine``; yields its address."""
    port = free_port()
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None:
        with streaming_engine() as engine:
            yield engine
        return
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, models=MODELS.decode(), answer=ANSWER.decode()))
    url = f"http://127.0.0.1:{port}"
    with running([nginx, "-p", str(folder), "-c", str(config)], CORES.clients, f"{url}/v1/models"):
        yield url


@contextmanager
def streaming_engine() -> Iterator[str]:
    """The engine of ``enginehouse bench``; yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "enginehouse.bench.engine", str(port), str(CHUNKS)]
    with running(command, CORES.clients, f"{url}/v1/models"):
        yield url


@contextmanager
def vllm_router(engine: str, program: str) -> Iterator[Measured]:
    """The Rust router of the vLLM project, from PyPI's ``vllm-router``."""
    with _rust_router("vllm-router", [program], engine) as measured:
        yield measured


@contextmanager
def sglang_router(engine: str, program: str) -> Iterator[Measured]:
    """The Rust router of the SGLang project, from PyPI's ``sglang-router``."""
    with _rust_router("sglang-router", [program, "launch"], engine) as measured:
        yield measured


@contextmanager
def _rust_router(name: str, program: Sequence[str], engine: str) -> Iterator[Measured]:
    port, metrics = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [*program, "--worker-urls", engine, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--policy", "round_robin", "--prometheus-port", str(metrics), "--log-level"]
    command += ["warn" if name == "sglang-router" else "warning"]
    with running(command, CORES.gateway, f"{url}/health") as pid:
        yield Measured(Contender(name, url, pid), {})


@contextmanager
def litellm(engine: str, program: str) -> Iterator[Measured]:
    """LiteLLM's proxy with one worker, from PyPI's ``litellm[proxy]``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    target = {"model": "openai/bench", "api_base": f"{engine}/v1", "api_key": "none"}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        json.dump({"model_list": [{"model_name": "bench", "litellm_params": target}]}, config)
        config.flush()
        command = [program, "--config", config.name, "--host", "127.0.0.1", "--port", str(port)]
        env = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": "sk-bench"}
        with running(command, CORES.gateway, f"{url}/health/liveliness", env) as pid:
            yield Measured(Contender("litellm", url, pid), {"authorization": "Bearer sk-bench"})


@contextmanager
def portkey(engine: str, program: str) -> Iterator[Measured]:
    """Portkey's gateway, from npm's ``@portkey-ai/gateway``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{engine}/v1", "authorization": "Bearer none"}
    with running([program, f"--port={port}", "--headless"], CORES.gateway, url) as pid:
        yield Measured(Contender("portkey", url, pid), headers)


PEERS: Mapping[str, Callable[[str, str], AbstractContextManager[Measured]]] = {
    "vllm-router": vllm_router,
    "sglang-router": sglang_router,
    "litellm": litellm,
    "gateway": portkey,
}
"""By the name of the program."""
TRACED = {"telemetry.traces": "otlp", "telemetry.endpoint": "http://127.0.0.1:9", "telemetry.sample_ratio": "0.01"}
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "enginehouse": TRACED,
    "untraced": {},
    "all traced": {**TRACED, "telemetry.sample_ratio": "1"},
}
"""The gateway as it is compared, with 1 % of the requests traced, and with none or all of them."""


@contextmanager
def contenders(engine: str, programs: str) -> Iterator[list[Measured]]:
    """The gateway and its variants, the engine itself, and the peers found among the folders ``programs``."""
    with ExitStack() as stack:
        found = [
            Measured(stack.enter_context(own_gateway(name, engine, keys, CORES)), {}) for name, keys in VARIANTS.items()
        ]
        found.append(Measured(Contender("direct", engine), {}))
        for name, peer in PEERS.items():
            if program := shutil.which(name, path=programs):
                found.append(stack.enter_context(peer(engine, program)))
        yield found
