"""The contenders: the engine itself, the gateway before it, and other gateways where they are installed."""

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

from proxies import PROXIES, Proxy

from enginehouse_bench.contenders import Contender, Cores, own_gateway, pinned
from enginehouse_bench.engine import ANSWER, MODELS

CORES = Cores.of_this_machine()
CHUNKS = 100
_NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log /dev/null;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 1h;
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
    """Run ``command`` on ``cores``. Yields its process id once the page ``ready`` answers."""
    with tempfile.TemporaryFile() as output:
        environment = {**os.environ, **(env or {})}
        with pinned(cores):
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment)
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
    """Run nginx with a fixed answer where it is installed, else ``streaming_engine``. Yields its address."""
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
def streaming_engine(chunks: int = CHUNKS) -> Iterator[str]:
    """Run the engine of ``enginehouse bench``. Yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "enginehouse_bench.engine", str(port), str(chunks)]
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
        yield Measured(Contender(name, url, pid, may_pause=True), {})


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
            yield Measured(Contender("litellm", url, pid, may_pause=True), {"authorization": "Bearer sk-bench"})


@contextmanager
def portkey(engine: str, program: str) -> Iterator[Measured]:
    """Portkey's gateway, from npm's ``@portkey-ai/gateway``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{engine}/v1", "authorization": "Bearer none"}
    with running([program, f"--port={port}", "--headless"], CORES.gateway, url) as pid:
        yield Measured(Contender("portkey", url, pid, may_pause=True), headers)


def _proxy(name: str, proxy: Proxy) -> Callable[[str, str], AbstractContextManager[Measured]]:
    @contextmanager
    def started(engine: str, program: str) -> Iterator[Measured]:
        port = free_port()
        with proxy(engine, program, port, lambda command, ready: running(command, CORES.gateway, ready)) as pid:
            yield Measured(Contender(name, f"http://127.0.0.1:{port}", pid, may_pause=True), {})

    return started


PEERS: Mapping[str, Callable[[str, str], AbstractContextManager[Measured]]] = {
    "vllm-router": vllm_router,
    "sglang-router": sglang_router,
    "litellm": litellm,
    "portkey": portkey,
    **{name: _proxy(name, proxy) for name, proxy in PROXIES.items()},
}
PROGRAMS = {"portkey": "gateway"}
"""The programs whose names differ from those of their projects."""
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "": {"telemetry.traces": "otlp", "telemetry.sample_ratio": "0.01"},
    ", untraced": {"telemetry.traces": "off"},
    ", all traced": {"telemetry.traces": "otlp", "telemetry.sample_ratio": "1"},
}
"""Settings of the gateway: with 1 % of the requests sampled, as it is compared, and with none or all of them.

The engine is the collector too: it answers every request with 200.
"""


class Own(NamedTuple):
    """A gateway of ours. ``variants``: also measure it with no request traced, and with all."""

    name: str
    python: str
    variants: bool


@contextmanager
def contenders(engine: str, own: Sequence[Own], peers: Sequence[str], folders: str) -> Iterator[list[Measured]]:
    """Our gateways first, then the engine itself, then those ``peers`` whose programs are among ``folders``."""
    with ExitStack() as stack:
        found = []
        for name, python, variants in own:
            for suffix, keys in VARIANTS.items() if variants else [("", VARIANTS[""])]:
                gateway = own_gateway(name + suffix, engine, {**keys, "telemetry.endpoint": engine}, CORES, python)
                found.append(Measured(stack.enter_context(gateway), {}))
        found.append(Measured(Contender("direct", engine), {}))
        for peer in peers:
            program = shutil.which(PROGRAMS.get(peer, peer), path=folders)
            if program is None:
                print(f"{peer} is left out: its program is not in {folders}")
            else:
                found.append(stack.enter_context(PEERS[peer](engine, program)))
        yield found
