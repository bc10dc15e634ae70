"""Open WebUI's server, with the gateway as its Ollama server and as its OpenAI connection."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
from tried import HELLO, MODEL, URL, tried

listening = socket.create_server(("127.0.0.1", 0))
address = f"http://127.0.0.1:{listening.getsockname()[1]}"
SETTINGS = {
    "WEBUI_AUTH": "False",
    "OLLAMA_BASE_URL": URL,
    "OPENAI_API_BASE_URL": f"{URL}/v1",
    "OPENAI_API_KEY": "none",
    "DATA_DIR": str(Path("data").resolve()),
    "WEBUI_SECRET_KEY": "tried",
    "RAG_EMBEDDING_ENGINE": "openai",  # its own model would be downloaded
    "OFFLINE_MODE": "True",
    "HF_HUB_OFFLINE": "1",
    "FROM_INIT_PY": "true",  # as its own command says
}
Path("data").mkdir(exist_ok=True)
command = [sys.executable, "-m", "uvicorn", "open_webui.main:app", "--fd", str(listening.fileno())]
server = subprocess.Popen(command, env={**os.environ, **SETTINGS}, stdout=sys.stderr, pass_fds=[listening.fileno()])
listening.close()
client = httpx.Client(base_url=address, timeout=60)


def is_up():
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def sign_in():
    while not is_up():
        if server.poll() is not None:
            raise RuntimeError("it has ended")
        time.sleep(0.5)
    told = client.post("/api/v1/auths/signin", json={"email": "", "password": ""}).raise_for_status().json()
    client.headers["authorization"] = f"Bearer {told['token']}"
    return True


def chat(path, **fields):
    asked = {"model": MODEL, "messages": HELLO, **fields}
    return client.post(path, json=asked).raise_for_status().text


try:
    tried(
        start=sign_in,
        models=lambda: MODEL in client.get("/api/models").raise_for_status().text,
        text=lambda: "choices" in chat("/api/chat/completions", stream=False),
        stream=lambda: "[DONE]" in chat("/api/chat/completions", stream=True),
        ollama=lambda: '"done":true' in chat("/ollama/api/chat", stream=True).replace(" ", ""),
    )
finally:
    server.terminate()
    server.wait(30)
