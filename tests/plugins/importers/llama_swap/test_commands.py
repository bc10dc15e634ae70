from __future__ import annotations

import pytest

from enginehouse_importers.llama_swap.models import driver_of, one_command, with_port


@pytest.mark.parametrize(
    ("command", "driver"),
    [
        ("llama-server -m x", "llamacpp"),
        ("/opt/b/llama-server-ec9e -m x", "llamacpp"),
        ("'C:\\llama cpp\\llama-server.exe' -m x", "llamacpp"),
        ("docker run -p ${port}:8080 ghcr.io/ggml-org/llama.cpp:server-cuda -m x", "llamacpp"),
        ("bash -c 'exec llama-server -m /srv/vllm'", "llamacpp"),
        ("/opt/llama.cpp/build/bin/whisper-server", "openai"),
        ("vllm serve x", "vllm"),
        ("/venv/bin/vllm serve llama-server-model", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server", "vllm"),
        ("podman run docker.io/vllm/vllm-openai:latest", "vllm"),
        ("python3 -m sglang.launch_server --model-path x", "sglang"),
        ("docker run lmsysorg/sglang:v0.4 x", "sglang"),
        ("./my-vllmish-server", "openai"),
        ("", "openai"),
    ],
)
def test_the_driver_is_known_by_the_engine_that_is_launched(command: str, driver: str) -> None:
    assert driver_of(command) == driver


@pytest.mark.parametrize(
    ("command", "port", "expected"),
    [
        ("server --port 8999 -c 8999", 8999, "server --port ${port} -c 8999"),
        ("server --port=8999", 8999, "server --port=${port}"),
        ("server --http-port  8999", 8999, "server --http-port  ${port}"),
        ("server --listen 0.0.0.0:8999", 8999, "server --listen 0.0.0.0:${port}"),
        ("server --listen [::]:8999", 8999, "server --listen [::]:${port}"),
        ("docker run -p 8080:8080 image --port 8080", 8080, "docker run -p ${port}:8080 image --port 8080"),
        ("docker run -p 127.0.0.1:80:8080 image", 80, "docker run -p 127.0.0.1:${port}:8080 image"),
        ("llama-server -m x", 8080, "llama-server -m x --port ${port}"),
        ("python3.12 -m vllm.entrypoints.x", 8000, "python3.12 -m vllm.entrypoints.x --port ${port}"),
        ("llama-server --port 81 -m x", None, "llama-server --port ${port} -m x"),
        ("llama-server --port 81 -m x", 82, None),
        ("server --top-p 5 -p 5", None, None),
        ("server --top-p 0.95 -n 89990", 8999, None),
        ("./run.sh", 8999, None),
        ("docker run ghcr.io/ggml-org/llama.cpp:server", 8080, None),
        ("bash -c 'llama-server -m x'", 8080, None),
    ],
)
def test_a_fixed_port_is_replaced_where_it_is_one(command: str, port: int | None, expected: str | None) -> None:
    assert with_port(command, port) == expected


def test_a_command_loses_comments_and_continuations_and_nothing_else() -> None:
    text = "# first\n  a \\\n    # second\n\t-b 'x\n y' \\\\\n c#d\n"
    assert one_command(text) == "a\n\t-b 'x\n y' \\\n c#d"
